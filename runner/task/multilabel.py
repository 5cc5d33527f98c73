"""Declarations of task=multilabel."""

from typing import ClassVar

from manyheads.runner.option.rules import choice, number
from manyheads.runner.task.task_option import TaskOption


class MultilabelOption(TaskOption):
    """Losses of (logits, 0 or 1 for each class), and mean average precision."""

    rules: ClassVar = {"reduction": choice("auto", "mean", "sum"), "ignore_index": number()}
    mixes = True
    measures = ("loss", "acc", "map")
    loss = "torch.nn.BCEWithLogitsLoss"
