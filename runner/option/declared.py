"""Finds what a section of the run config declares: the class that its key ``_option_`` names.

Without that key, it is the base class of the group. No class is looked up by an option's name or class, so a new option
does not have to be registered anywhere.
"""

from typing import Any

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.locate import load, locate
from manyheads.runner.option.tree import OPTION, Section

# The groups of options, in the order of the run config, and the base class of each group's declarations.
BASES = {
    "model": "manyheads.runner.model.model_option.ModelOption",
    "data": "manyheads.runner.data.data_option.DataOption",
    "task": "manyheads.runner.task.task_option.TaskOption",
    "optimizer": "manyheads.runner.optimizer.optimizer_option.OptimizerOption",
    "scheduler": "manyheads.runner.scheduler.scheduler_option.SchedulerOption",
    "precision": "manyheads.runner.precision.precision_option.PrecisionOption",
    "launcher": "manyheads.launchers.launcher_option.LauncherOption",
    "parallel": "manyheads.runner.parallel.parallel_option.ParallelOption",
}
GROUPS = tuple(BASES)
# The same for sections whose entries may have any name.
ENTRIES = {"logger": "manyheads.runner.logger.logger_option.LoggerOption"}


def declared(group: str, section: Section, *, name: str | None = None) -> Any:
    """A section with its declarations, an object of the group's base class. Imports the class that the section names.

    ``name``: of an entry, in groups of entries. Raises ConfigurationError if there is no such class, or if it does not
    belong to the group.
    """
    return declared_class(group, section)(section, key=None if name is None else f"{group}.{name}")


def declared_class(group: str, section: Section) -> Any:
    """The class of ``declared``, derived from the group's base class. Raises ConfigurationError as ``declared``."""
    bases = BASES | ENTRIES
    base = load(bases[group])
    name = section.get(OPTION)
    kind = base if name is None else locate(group, name, key=OPTION)
    if not (isinstance(kind, type) and issubclass(kind, base)):
        raise ConfigurationError.at(
            f"{group}.{OPTION}", name, f" is not allowed. Allowed: classes derived from {bases[group]}."
        )
    return kind
