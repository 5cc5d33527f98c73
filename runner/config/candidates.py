"""Settings that may make a run faster without changing its results, as its options declare them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any

from manyheads.runner.config import saved
from manyheads.runner.config.freeze import checked, completed
from manyheads.runner.config.lookup import options, read_option
from manyheads.runner.config.run_rules import TUNABLE
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine import hardware
from manyheads.runner.option.declared import GROUPS, declared_class
from manyheads.runner.option.rules import COMPUTE, Tunable
from manyheads.runner.option.run_config import RunConfig

STRATEGY = "parallel"


@dataclass(frozen=True)
class Candidate:
    """A change that computes the same updates in another way; or why there is none for a key."""

    key: Annotated[str, "such as trainer.compile, or parallel for another strategy"]
    part: Annotated[str, "of an update's time that it may change: data, compute, communication or optimizer"]
    change: Annotated[str, "overrides in one string, as for judge --change; empty if nothing can be tried"]
    reason: Annotated[str, "why nothing can be tried; else empty"] = ""


def candidates(run: RunConfig) -> Iterator[Candidate]:
    """All changes that the options of ``run`` declare, then those to the other exact strategies.

    ``run``: completed for this machine. A change that the rest of the config rules out is reported with the reason.
    """
    yield from settings(run)
    yield from strategies(run)


def startup_of(setting: str) -> float:
    """Roughly by how many seconds an override of a trainer key delays the first start, as the key's rule declares."""
    key, _, value = setting.partition("=")
    return TUNABLE[key].startup.get(value, 0.0) if key in TUNABLE else 0.0


def saves_memory(overrides: Iterable[str]) -> bool:
    """Whether they choose a strategy that is there to save memory rather than time."""
    return any(_saves_memory(word.partition("=")[2]) for word in overrides if word.startswith(f"{STRATEGY}="))


@cache
def _saves_memory(strategy: str) -> bool:
    return bool(declared_class(STRATEGY, read_option(STRATEGY, strategy)).saves_memory)


def settings(run: RunConfig) -> Iterator[Candidate]:
    """Changes of single keys to other values, as the run's options declare them."""
    for key, tunable in _declared(run):
        choices = tunable.values(run)
        if isinstance(choices, str):
            yield Candidate(key, tunable.part, "", choices)
            continue
        yield from (_candidate(run, key, tunable, value) for value in choices if value != _value(run, key))


def strategies(run: RunConfig) -> Iterator[Candidate]:
    """Changes to the other exact strategies, each with its own launcher and its default number of ranks."""
    for name in options(STRATEGY):
        if name == run.parallel.name or not declared_class(STRATEGY, read_option(STRATEGY, name)).is_exact:
            continue
        change = f"{STRATEGY}={name}"
        try:
            composed, folders = saved.composed(run.written, [change], chosen={STRATEGY})
            other = checked(composed, folders=folders)
        except ConfigurationError as error:
            yield Candidate(STRATEGY, COMPUTE, "", f"{change} is refused: {error}")
            continue
        if _devices(other) == _devices(run) == 1:
            yield Candidate(STRATEGY, COMPUTE, "", f"{change} is refused: on one device there is nothing to divide")
        else:
            yield Candidate(STRATEGY, COMPUTE, change)


def _devices(run: RunConfig) -> int | None:
    gpus = len(hardware.gpu_names()) if run.on_gpus else 0
    return run.parallel.devices(ranks=run.launcher.ranks, gpus=gpus)


def _declared(run: RunConfig) -> Iterator[tuple[str, Tunable]]:
    yield from TUNABLE.items()
    for group in GROUPS:
        option = getattr(run, group)
        yield from ((f"{group}.{key}", rule) for key, rule in option.all_tunable().items() if key in option.section)


def _candidate(run: RunConfig, key: str, tunable: Tunable, value: Any) -> Candidate:
    settings = {key: value, **{name: other for name, other in tunable.needs.items() if _value(run, name) != other}}
    change = " ".join(f"{name}={_typed(setting)}" for name, setting in settings.items())
    changed = run
    for name, other in settings.items():
        section, _, leaf = name.partition(".")
        changed = changed.changed(**{section: {leaf: other}})
    try:
        completed(changed)
    except ConfigurationError as error:
        return Candidate(key, tunable.part, "", f"{change} is refused: {error}")
    return Candidate(key, tunable.part, change)


def _value(run: RunConfig, key: str) -> Any:
    section, _, name = key.partition(".")
    return run.written[section][name]


def _typed(value: Any) -> str:
    """A value as it is typed in an override."""
    if isinstance(value, list):
        return f"[{','.join(map(_typed, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)
