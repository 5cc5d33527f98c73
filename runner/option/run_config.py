"""The run config: one frozen object with a typed section for each part, and its written form, run.yaml."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.declared import ENTRIES, GROUPS, declared
from manyheads.runner.option.sections import CheckpointSection, FixedSection, ParametersSection
from manyheads.runner.option.trainer_section import TrainerSection
from manyheads.runner.option.tree import Section, targets
from manyheads.runner.run.json_types import ResultJson
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.run.seal import digest_of
from manyheads.runner.run.yaml_text import flatten

if TYPE_CHECKING:  # the groups' base classes, which option/declared.py names
    from manyheads.launchers.launcher_option import LauncherOption
    from manyheads.runner.data.data_option import DataOption
    from manyheads.runner.logger.logger_option import LoggerOption
    from manyheads.runner.model.model_option import ModelOption
    from manyheads.runner.optimizer.optimizer_option import OptimizerOption
    from manyheads.runner.parallel.parallel_option import ParallelOption
    from manyheads.runner.precision.precision_option import PrecisionOption
    from manyheads.runner.scheduler.scheduler_option import SchedulerOption
    from manyheads.runner.task.task_option import TaskOption

FIXED: dict[str, type[FixedSection]] = {
    "parameters": ParametersSection,
    "trainer": TrainerSection,
    "checkpoint": CheckpointSection,
}


@dataclass(frozen=True)
class RunConfig:
    """A run config whose keys and values have been checked. Sections of options are objects of their declarations.

    ``written``: the same as plain values, in the order of run.yaml; must not be changed. Until the options are resolved
    (``config/freeze.py``), values may still be "auto".
    """

    name: str | None
    tags: Sequence[str]
    notes: str | None
    seed: int
    loss: Section
    metrics: Mapping[str, Section]
    callbacks: Mapping[str, Section]
    logger: "Mapping[str, LoggerOption]"
    parameters: ParametersSection
    trainer: TrainerSection
    checkpoint: CheckpointSection
    model: "ModelOption"
    data: "DataOption"
    task: "TaskOption"
    optimizer: "OptimizerOption"
    scheduler: "SchedulerOption"
    precision: "PrecisionOption"
    launcher: "LauncherOption"
    parallel: "ParallelOption"
    written: Section

    @classmethod
    def of(cls, config: Section) -> "RunConfig":
        """The typed form of plain values. Imports the declarations that the options name.

        Raises ConfigurationError for values that ``config/schema.py`` has not checked.
        """
        if missing := [key for key in cls.__dataclass_fields__ if key not in config and key != "written"]:
            message = f"{', '.join(missing)}: not set, so this is not the config of a run."
            raise ConfigurationError(message, key=missing[0])
        written = copy.deepcopy(dict(config))
        return cls(**{key: _typed(key, value) for key, value in written.items()}, written=written)

    @classmethod
    def read(cls, folder: RunFolder) -> "RunConfig":
        """The config that is frozen in a run folder. Raises ConfigurationError if it is missing or cannot be read."""
        return cls.of(folder.read_config())

    def changed(self, **sections: Mapping[str, Any]) -> "RunConfig":
        """The config with these keys of these sections set to other values."""
        merged = {name: {**self.written[name], **values} for name, values in sections.items()}
        typed = {name: _typed(name, section) for name, section in merged.items()}
        return replace(self, **typed, written={**self.written, **merged})

    def digests(self) -> dict[str, str]:
        """A digest of each value, by dotted key: machines compare by them whether they run the same config."""
        return {key: digest_of(value) for key, value in flatten(self.written).items()}

    @property
    def as_planned(self) -> ResultJson:
        """The part of result.json that is known before the run starts."""
        return {
            "world_size": self.launcher.ranks,
            "device": self.trainer.device,
            "parallel": self.parallel.name,
            "precision": self.precision.name,
            "launcher": self.launcher.name,
        }

    @property
    def on_gpus(self) -> bool:
        """Whether the ranks compute on GPUs."""
        return self.trainer.device != "cpu"

    @property
    def gpus_here(self) -> int:
        """How many GPUs of this machine the run uses, from the first."""
        if not self.on_gpus:
            return 0
        return self.launcher.gpus_here(self.parallel.gpus_used(ranks=self.launcher.nproc_per_node))

    @property
    def data_shares(self) -> int:
        """Number of parts into which a batch is divided: the data-parallel ranks. Raises ConfigurationError."""
        return self.parallel.data_shares(ranks=self.launcher.ranks)

    @property
    def batch_per_rank(self) -> int:
        """Number of samples in one rank's micro-batch."""
        return self.data.batch_size // (self.data_shares * self.trainer.grad_accumulation)

    @property
    def names_own_code(self) -> bool:
        """Whether it names classes of the user; the options have checked those of this project and of torch."""
        return any(not target.startswith(("manyheads.", "torch.", "auto")) for _, target in targets(self.written))

    def fits(self, ranks: int) -> bool:
        """Whether the batch can be divided among this many ranks."""
        try:
            shares = self.parallel.data_shares(ranks=ranks)
        except ConfigurationError:
            return False
        return shares > 0 and self.data.batch_size % (shares * self.trainer.grad_accumulation) == 0


def _typed(key: str, value: Any) -> Any:
    """A section in its typed form; other values unchanged."""
    if key in FIXED:
        return FIXED[key].of(key, value)
    if key in GROUPS:
        return declared(key, value)
    if key in ENTRIES:
        return {name: declared(key, entry, name=name) for name, entry in value.items()}
    return value
