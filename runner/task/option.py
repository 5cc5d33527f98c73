"""What a task declares; most need nothing but their YAML."""

from typing import Any, ClassVar

from manyheads.runner.option.base import Option
from manyheads.runner.run.errors import ConfigurationError


class TaskOption(Option):
    """What a batch means.

    ``measures``: the names of its loss and metrics; None where only the ranks can tell, which then check the monitor.
    """

    has_own_class = True
    measures: ClassVar[tuple[str, ...] | None] = None

    def complete(self, config: dict[str, Any]) -> None:
        monitor = config["checkpoint"]["monitor"]
        if self.measures is None or monitor == "auto":
            return
        columns = [f"val_{name}" for name in (*self.measures, *config["metrics"])]
        if monitor not in columns:
            raise ConfigurationError(
                f"checkpoint.monitor={monitor} is not measured. Allowed: auto, {', '.join(columns)}."
            )
