"""Declarations of task=classification."""

from typing import ClassVar

from manyheads.runner.option.rules import choice
from manyheads.runner.task.task_option import TaskOption


class ClassificationOption(TaskOption):
    """Losses of (logits, class numbers), and accuracies."""

    rules: ClassVar = {"reduction": choice("auto", "mean", "sum")}
    mixes = True
    measures = ("loss", "acc1", "acc5")
