"""The task and the loss of a run, from the config's sections."""

import inspect
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from manyheads.runner.run.errors import ConfigurationError
from manyheads.runner.run.locate import arguments_of, call, locate, signature
from manyheads.runner.task.base.rank import Task

if TYPE_CHECKING:
    from manyheads.runner.data.base.option import Data

REDUCTIONS = ("sum", "mean")


def build_task(config: dict[str, Any], data: "Data") -> Task:
    """The task, which is given ``loss`` and ``data`` where its class takes them. Raises ConfigurationError."""
    target, section = config["task"]["_target_"], arguments_of("task", config["task"])
    kind = locate("task", target)
    accepts = signature(kind).parameters
    if "loss" in accepts:
        section["loss"] = build_loss(config)
    if "data" in accepts:
        section["data"] = data
    task = call("task", target, kind, **section)
    if not isinstance(task, Task):
        raise ConfigurationError(f"task._target_={target} is not a manyheads Task. Derive the class from it.")
    if task.reduction not in REDUCTIONS:
        raise ConfigurationError(f"task._target_={target}: its reduction is {task.reduction!r}. Allowed: sum, mean.")
    return task


def build_loss(config: dict[str, Any]) -> nn.Module:
    """The loss, with trainer.label_smoothing where its class knows that. Raises ConfigurationError."""
    target, section = config["loss"]["_target_"], arguments_of("loss", config["loss"], without=())
    kind = locate("loss", target)
    smoothing = config["trainer"]["label_smoothing"]
    if smoothing:
        if "label_smoothing" not in signature(kind).parameters:
            raise ConfigurationError(
                f"trainer.label_smoothing={smoothing}: {target} has no such argument. Set it to 0."
            )
        section["label_smoothing"] = smoothing
    parameters = signature(kind).parameters
    section = {key: _as_tensor(value, parameters.get(key)) for key, value in section.items()}
    loss = call("loss", target, kind, **section)
    if not isinstance(loss, nn.Module):
        raise ConfigurationError(f"loss._target_={target} is not a torch.nn.Module. Choose a loss class.")
    return loss


def _as_tensor(value: Any, parameter: inspect.Parameter | None) -> Any:
    """A list where the loss takes a tensor, such as the weights of the classes, as one; all else as it is."""
    if parameter is None or "Tensor" not in str(parameter.annotation) or not isinstance(value, list):
        return value
    return torch.tensor(value, dtype=torch.get_default_dtype())
