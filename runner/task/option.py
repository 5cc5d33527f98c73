"""What a task declares; most need nothing but their YAML."""

from typing import ClassVar

from manyheads.runner.option.base import Option
from manyheads.runner.option.rules import choice


class TaskOption(Option):
    """What a batch means, and how its loss is averaged."""

    rules: ClassVar = {"reduction": choice("auto", "mean", "sum")}
