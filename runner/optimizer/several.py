"""Declarations of optimizer=several."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.optimizer.optimizer_option import OptimizerOption
from manyheads.runner.option.rules import KeyKind, Rule
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.option.tree import TARGET, Section

OF_PART = ("match", "scheduler")  # keys that are not its optimizer's


def _is_optimizer(part: Any) -> bool:
    return isinstance(part, dict) and isinstance(part.get(TARGET), str) and "lr" in part


PARTS = Rule(
    "names, each with an optimizer: _target_, lr and its arguments, as +optimizer@optimizer.parts.NAME=adamw sets them",
    lambda v: isinstance(v, dict) and all(str(name).isidentifier() and _is_optimizer(part) for name, part in v.items()),
    {"type": "object", "additionalProperties": {"type": "object"}},
    KeyKind.OBJECT,
)


class SeveralOption(OptimizerOption):
    """Optimizers by name, each for a part of the model."""

    rules: ClassVar = {"parts": PARTS}
    builder = "manyheads.runner.optimizer.rank.several.build"
    parts: Mapping[str, Section]
    lr_scaling = "none"  # of the run's optimizer; each part has its own
    base_batch_size = 256

    @property
    def singles(self) -> Sequence[OptimizerOption]:
        return [*self.options.values()]

    @cached_property
    def options(self) -> dict[str, OptimizerOption]:
        """The declarations of each part's optimizer."""
        defaults = {"name": "custom", "lr_scaling": "none", "base_batch_size": 256}
        return {
            name: OptimizerOption(
                {**defaults, **{key: value for key, value in part.items() if key not in OF_PART}},
                key=f"optimizer.parts.{name}",
            )
            for name, part in self.parts.items()
        }

    @cached_property
    def schedulers(self) -> dict[str, Section]:
        """The schedules of the parts that have their own."""
        return {name: part["scheduler"] for name, part in self.parts.items() if part.get("scheduler")}

    @property
    def patterns(self) -> Mapping[str, list[str]]:
        """By part the patterns of its parameters: its name, unless ``match`` is set."""
        given = {name: part.get("match", name) for name, part in self.parts.items()}
        return MappingProxyType({name: [match] if isinstance(match, str) else match for name, match in given.items()})

    @property
    def lr(self) -> float:  # type: ignore[override]
        """The learning rate of the first part."""
        return next(iter(self.options.values())).lr

    def lr_in_words(self, batch_size: int) -> str:
        return ", ".join(f"{name} {option.lr_in_words(batch_size)}" for name, option in self.options.items())

    def check_keys(self) -> None:
        if not self.parts:
            raise ConfigurationError(
                "optimizer.parts: optimizer=several has no optimizer. Add one for each part of the model: "
                "+optimizer@optimizer.parts.generator=adam.",
                key="optimizer.parts",
            )
        for name, option in self.options.items():
            for key, value in option.section.items():
                if (rule := OptimizerOption.rules.get(key)) is not None and not rule.accepts(value):
                    raise ConfigurationError.at(
                        f"optimizer.parts.{name}.{key}", value, f" is not allowed. Allowed: {rule.allowed}."
                    )

    def check_run(self, run: RunConfig) -> None:
        if any("lr" in group for group in run.parameters.groups):
            raise ConfigurationError(
                "parameters.groups: lr, where optimizer=several has a learning rate for each part. Set lr_factor, or "
                "optimizer.parts.<name>.lr.",
                key="parameters.groups",
            )
        if not run.parallel.several_optimizers:
            raise ConfigurationError.at(
                "parallel",
                run.parallel.name,
                " wraps or divides a single optimizer. With optimizer=several, set parallel=single, ddp or fsdp.",
            )
