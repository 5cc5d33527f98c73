"""Declarations of task=regression."""

from typing import ClassVar

from manyheads.runner.option.rules import choice
from manyheads.runner.task.task_option import TaskOption


class RegressionOption(TaskOption):
    """Losses of (outputs, values), the mean absolute error and R2."""

    rules: ClassVar = {"reduction": choice("auto", "mean", "sum")}
    measures = ("loss", "mae", "r2")
    loss = "torch.nn.MSELoss"
