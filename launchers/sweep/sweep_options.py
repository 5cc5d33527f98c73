"""The options of a sweep as a whole: hydra.launcher.<key>=<value>, and the combinations that ``exclude`` names."""

import re
from dataclasses import dataclass, field, fields
from typing import Any

from omegaconf import DictConfig, OmegaConf

from manyheads.runner.config.command_line import typed_values
from manyheads.runner.config.hydra_errors import QUOTES
from manyheads.runner.errors import ConfigurationError, not_allowed
from manyheads.runner.option import rules

RULES = {
    "jobs": rules.either(rules.AUTO, rules.whole(1)),
    "on_failure": rules.choice("continue", "stop"),
    "on_oom": rules.choice("fail", "split"),
    "timeout": rules.either(rules.NULL, rules.number(above=0)),
    "repeat": rules.whole(1),
    "repeat_seed": rules.choice("vary", "same"),
    "interleave": rules.BOOLEAN,
    "share_devices": rules.BOOLEAN,
    "dry_run": rules.BOOLEAN,
}


@dataclass
class Options:
    """Defaults of ``hydra/launcher=manyheads``."""

    # Jobs at once, each in its own process, on its own devices. auto: as many as fit on this machine; with
    # launcher=ray or slurm, as many as fit on the cluster, and one that waits. For timings, keep 1.
    jobs: Any = 1
    # After a failed job: continue with the others, or stop.
    on_failure: Any = "continue"
    # A job that runs out of device memory fails, or is split: rerun with half the micro-batch, accumulated twice.
    on_oom: Any = "fail"
    # Minutes after which a job is ended as failed, unless launcher.timeout is set.
    timeout: Any = None
    # How many times each job is run.
    repeat: Any = 1
    # Repeats vary in their seed (seed, seed + 1, ...), or have the same.
    repeat_seed: Any = "vary"
    # All jobs once, then all again, so that changes of the machine's speed affect all; else a job's repeats in a row.
    interleave: Any = False
    # Combinations to leave out, such as "parallel=dp,precision=apex"; one, or a list.
    exclude: Any = field(default_factory=list)
    # With jobs > 1: several jobs may use the same GPU.
    share_devices: Any = False
    # Only show what would be run.
    dry_run: Any = False

    def check(self) -> None:
        """Raises ConfigurationError, naming the key, for a value that is not allowed."""
        for key, rule in RULES.items():
            if not rule.accepts(value := getattr(self, key)):
                raise not_allowed(f"hydra.launcher.{key}", value, rule.allowed, values=rule.values)

    @classmethod
    def of(cls, values: dict[str, Any]) -> "Options":
        """The options in a ledger's first line; keys of other versions are ignored."""
        names = {item.name for item in fields(cls)}
        return cls(**{key: value for key, value in values.items() if key in names})


Combination = dict[str, Any]
_ABSENT = object()
_NEXT = re.compile(r",(?=[^,=\[\]{}()]*=)")  # a comma before the next key, not one within a list


def combinations(exclude: Any) -> list[Combination]:
    """Parse ``parallel=dp,precision=apex``, {parallel: dp, precision: apex}, or a list of these.

    Raises ConfigurationError for anything else.
    """
    items = exclude if isinstance(exclude, list) else [exclude]
    return [_parse(item) for item in items if item]


def _parse(item: Any) -> Combination:
    if isinstance(item, dict):
        return {str(key): value for key, value in item.items()}
    combination: Combination = {}
    for part in _NEXT.split(str(item)):
        value = typed_values([part.strip()])
        if not value or "" in value:
            raise ConfigurationError.at("hydra.launcher.exclude", item, f": {part!r} is not key=value. {QUOTES}")
        combination |= value
    return combination


def excluded_by(config: DictConfig, excluded: list[Combination]) -> Combination | None:
    """The first combination that a composed config matches completely."""
    return next((case for case in excluded if all(_holds(config, key, case[key]) for key in case)), None)


def written(combination: Combination) -> str:
    """A combination as it is typed on the command line."""
    return ",".join(f"{key}={value}" for key, value in combination.items())


def check_used(excluded: list[Combination], configs: list[DictConfig]) -> None:
    """Raises ConfigurationError for a combination that no job has, which would silently exclude nothing."""
    for combination in excluded:
        if not any(excluded_by(config, [combination]) for config in configs):
            raise ConfigurationError.at(
                "hydra.launcher.exclude",
                written(combination),
                ": no job of this sweep has that value. Use keys and values that are swept.",
            )


def _holds(config: DictConfig, key: str, value: Any) -> bool:
    if key in config.hydra.runtime.choices:
        return config.hydra.runtime.choices[key] == str(value)
    return OmegaConf.select(config, key, default=_ABSENT) == value
