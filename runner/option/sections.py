"""The sections that every run config has, typed; conf/config.yaml has the default and the meaning of each key."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from manyheads.runner.errors import ConfigurationError, Unavailable
from manyheads.runner.run import objects
from manyheads.runner.run.checkpoint_places import is_checkpoint
from manyheads.runner.run.objects import Address

if TYPE_CHECKING:
    from manyheads.runner.option.trainer_section import TrainerSection


@dataclass(frozen=True)
class FixedSection:
    """A section with the same keys in every run."""

    @classmethod
    def of(cls, name: str, section: Mapping[str, Any]) -> Self:
        """The section ``name`` as it is written. Raises ConfigurationError unless its keys are this class's fields."""
        names = {declared.name for declared in fields(cls)}
        for key in names ^ section.keys():
            what = "is missing" if key in names else "is not a key of the run config"
            message = f"{name}.{key} {what}, so this config was not frozen by this version."
            raise ConfigurationError(message, key=f"{name}.{key}")
        return cls(**section)


@dataclass(frozen=True)
class ParametersSection(FixedSection):
    """The trained parameters, and their settings."""

    freeze: Sequence[str]
    freeze_epochs: Sequence[Mapping[str, Any]]
    freeze_batchnorm: bool
    norm_weight_decay: float | None
    bias_weight_decay: float | None
    layer_decay: float | None
    groups: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class CheckpointSection(FixedSection):
    """When checkpoints are written, which are kept, and which one a run starts from."""

    every: int | str
    format: str
    asynchronous: bool
    keep: int
    keep_every: int
    keep_hours: float
    load: str | None
    strict: bool
    resume: str | None
    monitor: str
    mirror: str | None
    mirror_wait: float | str

    def resolved_keys(self) -> Mapping[str, str]:
        """The paths of checkpoints as absolute ones. Raises ConfigurationError if one is missing."""
        absolute = {}
        for key, typed in (("load", self.load), ("resume", self.resume)):
            if typed is not None:
                path = Path(typed).expanduser().absolute()
                if not is_checkpoint(path):
                    raise ConfigurationError.at(
                        f"checkpoint.{key}",
                        typed,
                        ": there is no such file. Set it to a .pt file, or to the folder of a sharded checkpoint.",
                    )
                absolute[key] = str(path)
        return absolute

    def check_keys(self, trainer: "TrainerSection") -> None:
        """Raises ConfigurationError for keys that contradict each other or training, Unavailable without a mirror."""
        if self.mirror is not None:
            Address.of(self.mirror, key="checkpoint.mirror")
            if reason := objects.unavailable():
                raise Unavailable.at("checkpoint.mirror", self.mirror, f": {reason}.")
        if trainer.evaluate_only and self.load is None:
            raise ConfigurationError.at(
                "trainer.evaluate_only", True, " evaluates a checkpoint. Set checkpoint.load=<run>/checkpoints/best.pt."
            )
        if self.resume is not None and (trainer.evaluate_only or self.load is not None):
            other = "trainer.evaluate_only=true" if trainer.evaluate_only else f"checkpoint.load={self.load}"
            raise ConfigurationError.at(
                "checkpoint.resume", self.resume, f" resumes a run, {other} does not. Set only one of them."
            )
        if trainer.on_spike == "rollback" and self.every == 0:
            raise ConfigurationError.at(
                "trainer.on_spike",
                "rollback",
                " returns to a checkpoint, and checkpoint.every=0 writes none. Set checkpoint.every=1epoch.",
            )
