"""The task and the loss of a run, from the config's sections."""

import inspect
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.locate import arguments_of, call, locate, signature
from manyheads.runner.option.tree import Section
from manyheads.runner.task.rank.task import Task
from manyheads.runner.task.task_option import TaskOption

if TYPE_CHECKING:
    from manyheads.runner.data.data_option import Data

REDUCTIONS = ("sum", "mean", "batch")


def build_task(option: TaskOption, data: "Data", *, loss: Section, label_smoothing: float) -> Task:
    """The task, which gets ``data`` and the loss that ``loss`` describes if its class accepts them.

    A class that accepts ``ignores`` also gets whether the config sets loss.ignore_index.

    Raises ConfigurationError.
    """
    target, accepts = option.target, signature(option.kind).parameters
    offered: dict[str, Any] = {"data": data, "ignores": "ignore_index" in loss}
    if "loss" in accepts:
        offered["loss"] = build_loss(loss, label_smoothing)
    task = option.instantiate(**{key: value for key, value in offered.items() if key in accepts})
    if not isinstance(task, Task):
        raise ConfigurationError.at("task._target_", target, " is not a manyheads Task. Derive the class from it.")
    if task.reduction not in REDUCTIONS:
        raise ConfigurationError.at(
            "task._target_", target, f": its reduction is {task.reduction!r}. Allowed: {', '.join(REDUCTIONS)}."
        )
    if (trained := next((name for name, p in task.named_parameters() if p.requires_grad), None)) is not None:
        raise ConfigurationError.at(
            "task._target_",
            target,
            f": its {trained} requires gradients, but an optimizer only trains the model. Freeze a teacher with "
            "requires_grad_(False), or move what is trained into the model.",
        )
    return task


def build_loss(section: Section, smoothing: float) -> nn.Module:
    """The loss, with label smoothing if its class supports that. Raises ConfigurationError."""
    target, given = section["_target_"], arguments_of("loss", section, without=())
    kind = locate("loss", target)
    parameters = signature(kind).parameters
    if smoothing:
        if "label_smoothing" not in parameters:
            raise ConfigurationError.at(
                "trainer.label_smoothing", smoothing, f": {target} has no such argument. Set it to 0."
            )
        given["label_smoothing"] = smoothing
    given = {key: _as_tensor(value, parameters.get(key)) for key, value in given.items()}
    loss = call("loss", target, kind, **given)
    if not isinstance(loss, nn.Module):
        raise ConfigurationError.at("loss._target_", target, " is not a torch.nn.Module. Choose a loss class.")
    return loss


def _as_tensor(value: Any, parameter: inspect.Parameter | None) -> Any:
    """A list as a tensor if the loss takes one, such as class weights; anything else unchanged."""
    if parameter is None or "Tensor" not in str(parameter.annotation) or not isinstance(value, list):
        return value
    return torch.tensor(value, dtype=torch.get_default_dtype())
