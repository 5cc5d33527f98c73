"""What the options declare, without torch."""

from typing import ClassVar

from manyheads.runner.logger.logger_option import LoggerOption
from manyheads.runner.option.rules import PLACE, whole
from manyheads.runner.parallel.parallel_option import ParallelOption


class RingOption(ParallelOption):
    rules: ClassVar = {"rounds": whole(1)}
    color = "#654321"

    def note(self) -> str:
        return "gradients travel around a ring"


class JotterOption(LoggerOption):
    rules: ClassVar = {"file": PLACE}
    leaves = ("jotted.txt",)
