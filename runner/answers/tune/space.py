"""The configurations that a tuning may try, and their neighbours; they are composed like any run's."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import cached_property

from manyheads.runner.answers.tune.race import BASE, Variant
from manyheads.runner.config.candidates import STRATEGY, Candidate, settings, strategies
from manyheads.runner.config.command_line import CommandLine
from manyheads.runner.config.composing import run_config
from manyheads.runner.config.lookup import options
from manyheads.runner.config.origin import Origin
from manyheads.runner.errors import ConfigurationError, not_allowed
from manyheads.runner.option.rules import COMMUNICATION, COMPUTE, DATA, OPTIMIZER
from manyheads.runner.option.run_config import RunConfig

PRECISION = "precision"
OF_STRATEGY = ("parallel.", "launcher.")  # overrides that are dropped when another strategy is chosen
# The settings that usually gain most come first: after the number of devices, loading, then computing, communication.
ORDER = (DATA, COMPUTE, COMMUNICATION, OPTIMIZER)


@dataclass
class Space:
    """The space of configurations.

    ``line``, ``origin``: the resolved command line of the user's own configuration, and where its configs come from.
    ``over``: patterns of the only keys to try, such as ``trainer.*``; empty: all.
    ``fixed``: patterns of keys to leave unchanged.
    ``precisions``: whether every configuration is tried in other precisions too.
    ``gradients``: whether to try compressing gradients, or combining them other than by averaging.
    ``refused``: why a configuration cannot run, by its overrides; it is added to.
    """

    line: CommandLine
    origin: Origin
    over: Sequence[str] = ()
    fixed: Sequence[str] = ()
    precisions: bool = False
    gradients: bool = False
    refused: dict[str, str] = field(default_factory=dict)
    _runs: dict[Variant, RunConfig | None] = field(default_factory=dict)
    _settings: dict[Variant, list[Candidate]] = field(default_factory=dict)

    def check_patterns(self) -> None:
        """Raise ConfigurationError for a pattern that matches no key of the user's configuration."""
        keys = {PRECISION, STRATEGY, *(candidate.key for candidate in self._candidates(BASE))}
        for flag, patterns in (("--over", self.over), ("--fix", self.fixed)):
            for pattern in patterns:
                if not any(fnmatch(key, pattern) for key in keys):
                    raise not_allowed(flag, pattern, f"{', '.join(sorted(keys))}, or patterns such as data.*")

    def run(self, variant: Variant) -> RunConfig:
        """The complete run config of a configuration. Raises ConfigurationError if it cannot run here."""
        if variant not in self._runs:
            self._runs[variant] = run_config(self.overrides(variant), self.line, self.origin)
        config = self._runs[variant]
        assert config is not None
        return config

    def overrides(self, variant: Variant) -> list[str]:
        """All overrides of a configuration: its own, and those of the user's that it does not replace."""
        replaced = {override.partition("=")[0] for override in variant}
        return [*_without(self.line.overrides, *replaced), *variant]

    def steps(self, variant: Variant) -> list[str]:
        """The keys of this configuration for which other values may be tried, in the order in which to try them."""
        parts = {candidate.key: candidate.part for candidate in self._candidates(variant)}
        keys = sorted(parts, key=lambda key: ORDER.index(parts[key]))
        first = [PRECISION] if self.precisions else []
        last = [f"{STRATEGY}.{key}" for key in self.run(variant).parallel.changes_gradients] if self.gradients else []
        return [key for key in (*first, STRATEGY, *keys, *last) if self._is_tried(key)]

    def alternatives(self, variant: Variant, step: str) -> list[Variant]:
        """The configurations that differ from this one in ``step`` only, possible or not."""
        variants = dict.fromkeys(map(_ordered, self._changed(variant, step)))
        return [other for other in variants if other != variant]

    def in_other_precisions(self, variant: Variant) -> list[Variant]:
        """The same configuration in each other precision."""
        variants = self.alternatives(variant, PRECISION) if self._is_tried(PRECISION) else []
        return [other for other in variants if self.is_possible(other)]

    def _candidates(self, variant: Variant) -> list[Candidate]:
        """Other values that the options of this configuration declare for their keys."""
        if variant not in self._settings:
            self._settings[variant] = [*settings(self.run(variant))]
        return self._settings[variant]

    @cached_property
    def _strategies(self) -> list[str]:
        """All strategies but the user's own, as overrides."""
        candidates = [*strategies(self.run(BASE))]
        for candidate in candidates:
            if candidate.reason:
                self._refuse(candidate, candidate.reason.partition(" is refused")[0])
        return [candidate.change for candidate in candidates if candidate.change]

    def _refuse(self, candidate: Candidate, name: str) -> None:
        self.refused.setdefault(name, candidate.reason.removeprefix(f"{name} is refused: "))

    def _changed(self, variant: Variant, step: str) -> Iterator[Sequence[str]]:
        if step == PRECISION:
            usual = self.run(BASE).precision.name
            for name in options(PRECISION, self.line.folders):
                yield (*_without(variant, PRECISION), *([] if name == usual else [f"{PRECISION}={name}"]))
            return
        option = self.run(variant).parallel
        if (key := step.removeprefix(f"{STRATEGY}.")) in option.changes_gradients:
            yield from ((*_without(variant, step), f"{step}={value}") for value in option.all_rules()[key].values)
            return
        if step == STRATEGY:
            kept = [override for override in _without(variant, STRATEGY) if not override.startswith(OF_STRATEGY)]
            yield kept
            yield from ([*kept, change] for change in self._strategies)
            return
        for candidate in self._candidates(variant):
            if candidate.key == step and candidate.change:
                words = candidate.change.split()
                yield (*_without(variant, *(word.partition("=")[0] for word in words)), *words)
            elif candidate.key == step:
                self._refuse(candidate, step)

    def is_possible(self, variant: Variant) -> bool:
        """Whether it can run, as far as its config tells, and does not equal another configuration."""
        if variant not in self._runs:
            try:
                run = self.run(variant)
                reason = _other_updates(run)
            except ConfigurationError as error:
                reason = str(error)
            if reason:
                self.refused.setdefault(" ".join(variant), reason)
            elif not any(
                name != variant and other is not None and other.written == run.written
                for name, other in self._runs.items()
            ):
                return True
            self._runs[variant] = None
        return self._runs[variant] is not None

    def _is_tried(self, key: str) -> bool:
        if any(fnmatch(key, pattern) for pattern in self.fixed):
            return False
        return not self.over or any(fnmatch(key, pattern) for pattern in self.over)


def _other_updates(run: RunConfig) -> str:
    """Why a run's strategy does not take the same updates as one process; empty if it does."""
    if not run.parallel.is_exact:
        return f"parallel={run.parallel.name} takes other updates than one process"
    if run.parallel.outlives_ranks:
        return f"parallel={run.parallel.name} is for ranks that may die"
    return ""


def _without(variant: Sequence[str], *keys: str) -> list[str]:
    return [override for override in variant if override.partition("=")[0] not in keys]


def _ordered(variant: Sequence[str]) -> Variant:
    """Groups before keys, each in alphabetical order, so that equal sets of overrides compare equal."""
    return tuple(sorted({*variant}, key=lambda override: ("." in override.partition("=")[0], override)))
