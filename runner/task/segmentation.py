"""Declarations of task=segmentation."""

from typing import ClassVar

from manyheads.runner.option.rules import INTEGER, number
from manyheads.runner.task.task_option import TaskOption


class SegmentationOption(TaskOption):
    """Cross-entropy of pixels, and mean IoU."""

    rules: ClassVar = {
        "ignore_index": INTEGER,
        "aux_weight": number(at_least=0),
    }
    measures = ("loss", "acc", "miou")
