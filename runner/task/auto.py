"""Declarations of task=auto."""

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.option.tree import OPTION, TARGET, Section
from manyheads.runner.task.task_option import TaskOption

PACKAGE = "manyheads.runner.task"
TASKS: dict[str, Section] = {
    name: {
        TARGET: f"{PACKAGE}.rank.{name}.{name.title()}",
        OPTION: f"{PACKAGE}.{name}.{name.title()}Option",
        "name": name,
        "reduction": "auto",
    }
    for name in ("classification", "regression")
}


class AutoOption(TaskOption):
    """Stands for the task that the data names, until the config is resolved."""

    def resolved(self, run: RunConfig) -> RunConfig:
        name = run.data.task()
        if name is None:
            raise ConfigurationError.at(
                "task", "auto", f": data={run.data.name} does not say what its targets are. Set task.", allowed=[*TASKS]
            )
        changed = run.changed(task=TASKS[name])
        return changed.task.resolved(changed)
