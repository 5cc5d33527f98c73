"""The metrics that the config's section ``metrics`` names."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.metrics.metric import Metric
from manyheads.runner.option.locate import Section, arguments_of, call, locate, signature

if TYPE_CHECKING:
    from manyheads.runner.task.rank.task import Task


def build_metrics(section: Mapping[str, Section], task: "Task", num_classes: int | None) -> list[Metric]:
    """Build the metrics, passing each its name, and the task and the number of classes if it accepts them.

    Raises ConfigurationError for a class that is not a Metric.
    """
    found = []
    for name, entry in section.items():
        group, target = f"metrics.{name}", entry["_target_"]
        kind = locate(group, target)
        accepts = signature(kind).parameters
        known = {"task": task, "num_classes": num_classes}
        given = {key: value for key, value in known.items() if key in accepts}
        made = call(group, target, kind, **{"name": name, **given, **arguments_of(group, entry, without=())})
        if not isinstance(made, Metric):
            raise ConfigurationError.at(
                f"{group}._target_", target, f" is not a Metric. Derive the class from {Metric.__module__}.Metric."
            )
        found.append(made)
    return found
