"""From the command's overrides to one config for each strategy, the baseline's first."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from hydra import compose
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

from manyheads.runner.answers.measure.steps_task import LargestDifference, ParityFindings
from manyheads.runner.answers.measure.subject import check_fresh_start
from manyheads.runner.config.command_line import CommandLine, searching
from manyheads.runner.config.freeze import checked
from manyheads.runner.config.hydra_errors import check_experiment, refuse_hydra
from manyheads.runner.config.hydra_version import composing_from_conf
from manyheads.runner.config.lookup import Folders, no_such_option, options, read_option, unknown_key
from manyheads.runner.config.origin import Origin
from manyheads.runner.errors import ConfigurationError, Unavailable
from manyheads.runner.option.declared import declared_class
from manyheads.runner.option.run_config import RunConfig

PRECISION = "fp64"  # its rounding can't be mistaken for a difference
WHICH = "parallel"


@dataclass(frozen=True)
class PlannedSide:
    """One strategy's run. ``run``: its config; None if this machine cannot run it, for the ``reason``."""

    strategy: str
    run: RunConfig | None
    reason: str = ""


def plan(line: CommandLine, origin: Origin) -> list[PlannedSide]:
    """The plan of the comparison, checked, with nothing written.

    Raises ConfigurationError, or Hydra's own exceptions, for wrong overrides.
    """
    overrides, folders = list(line.overrides), line.folders
    parsed = OverridesParser.create().parse_overrides(overrides)
    check_experiment(OmegaConf.create(overrides), folders)
    refuse_hydra(parsed, because="parity starts its runs itself")
    strategies = _strategies([o for o in parsed if o.key_or_group == WHICH], folders)
    given = [o for o in parsed if o.key_or_group != WHICH]
    planned: list[PlannedSide] = []
    taken: set[str | None] = set()
    path = [searching(folders[1:])] if folders[1:] else []
    with composing_from_conf():
        for strategy in strategies:
            alone = declared_class(WHICH, read_option(WHICH, strategy, folders)).one_process
            fitting = list(_fitting(given, strategy, path, alone=alone))
            taken |= set(fitting)
            composed = compose("config", [*fitting, *path])
            planned.append(_planned(strategy, composed, folders, origin, first=not planned))
    for override in given:
        if override.input_line not in taken:
            raise ConfigurationError(
                f"{override.input_line}: none of {WHICH}={','.join(strategies)} has that key. "
                f"{_whose(override, folders)}",
                key=override.key_or_group,
                value=override.value(),
            )
    return planned


def _strategies(chosen: list[Override], folders: Folders) -> list[str]:
    """The baseline and the requested strategies, or all. Raises ConfigurationError."""
    if len(chosen) > 1:
        raise ConfigurationError(
            f"{chosen[-1].input_line}: {WHICH} is given twice. Name all strategies in one override.", key=WHICH
        )
    # Strategies with the same number of threads are adjacent: the server that ranks are forked from serves one number.
    classes = {name: declared_class(WHICH, read_option(WHICH, name, folders)) for name in options(WHICH, folders)}
    names = sorted(classes, key=lambda name: not classes[name].one_process)
    baseline = next(name for name in classes if classes[name].is_baseline)
    for override in chosen:
        several = override.is_sweep_override()
        names = list(override.sweep_string_iterator()) if several else [str(override.value())]
    for name in names:
        if name not in classes:
            raise no_such_option(WHICH, name, folders)
    names = list(dict.fromkeys([baseline, *names]))
    if len(names) == 1:
        others = [name for name in classes if name != baseline]
        raise ConfigurationError.at(
            WHICH, baseline, f" is the baseline itself. Name others to compare: {WHICH}={','.join(others)}."
        )
    return names


def _fitting(given: list[Override], strategy: str, path: list[str], *, alone: bool) -> Iterator[str]:
    """The overrides that this strategy's config has a place for, with its own added. ``alone``: it has one rank."""
    wanted = [o for o in given if not (alone and o.key_or_group in ("launcher", "launcher.nproc_per_node"))]
    common = [str(o.input_line) for o in wanted if not o.key_or_group.startswith((f"{WHICH}.", "launcher."))]
    groups = compose("config", [*common, f"{WHICH}={strategy}", *path])
    for override in wanted:
        section, _, key = override.key_or_group.partition(".")
        if section not in (WHICH, "launcher") or not key or key.partition(".")[0] in groups[section]:
            yield str(override.input_line)
    yield f"{WHICH}={strategy}"
    untouched = groups.precision.name == read_option("precision", "fp32")["name"]
    if untouched and not any(o.key_or_group == "precision" for o in given):
        yield f"precision={PRECISION}"


def _planned(strategy: str, composed: DictConfig, folders: Folders, origin: Origin, *, first: bool) -> PlannedSide:
    try:
        run = checked(composed, admit=origin.admit, folders=folders)
    except Unavailable as reason:
        if first:
            raise
        return PlannedSide(strategy, None, str(reason))
    check_fresh_start(run, what="a parity check")
    return PlannedSide(strategy, run)


def _whose(override: Override, folders: Folders) -> str:
    if override.key_or_group in ("launcher", "launcher.nproc_per_node"):
        return "They run in one process. Add another strategy, such as ddp, or leave it out."
    return unknown_key(override.key_or_group, folders)


EQUAL, DIFFERENT, FAILED, NOT_HERE = "equal", "different", "failed", "not here"


@dataclass(frozen=True)
class ParityOutcome:
    """The outcome of one strategy. ``findings``: of its ranks; ``error``: why it failed or is unavailable.

    ``run``: its config, if it was started.
    """

    strategy: str
    state: str
    tolerance: float = 0.0
    findings: ParityFindings = field(default_factory=ParityFindings)
    error: str = ""
    run: RunConfig | None = None

    @property
    def differs(self) -> bool:
        """Whether the strategy computed something else, or failed."""
        return self.state in (DIFFERENT, FAILED)

    @property
    def ranks(self) -> int | None:
        """The number of ranks that were compared; None if none ran."""
        return self.findings.get("ranks")

    def largest(self, kind: str) -> float:
        """The largest difference among tensors of this kind."""
        return max((e["largest"] for e in self.findings.get("differences", []) if e["kind"] == kind), default=0.0)

    def beyond(self, *kinds: str) -> list[LargestDifference]:
        """Differences above the tolerance, the largest first; of these kinds, or of all."""
        exceeding = [
            e for e in self.findings.get("differences", []) if "first" in e and (not kinds or e["kind"] in kinds)
        ]
        return sorted(exceeding, key=lambda entry: -entry["largest"])


def judged(strategy: str, findings: ParityFindings, *, tolerance: float, run: RunConfig) -> ParityOutcome:
    """Equal if no difference exceeds the tolerance, and all ranks built the same model and kept the same weights.

    The baseline itself is compared with the module as its constructor returned it.
    """
    beyond = any(not entry["largest"] <= tolerance for entry in findings["differences"])
    state = DIFFERENT if beyond or findings.get("initial") or findings.get("apart") else EQUAL
    return ParityOutcome(strategy, state, tolerance, findings, run=run)


def near(a: float, b: float) -> bool:
    """Whether two numbers are the same for a sentence, to 1e-3."""
    return math.isclose(a, b, rel_tol=1e-3)
