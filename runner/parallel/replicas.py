"""What strategies declare whose ranks hold a replica of the model each."""

from collections.abc import Sequence
from typing import ClassVar

from manyheads.runner.option.rules import AUTO, BOOLEAN, either, number
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.option.tunable import COMMUNICATION, Tunable, always
from manyheads.runner.parallel.parallel_option import ParallelOption

UNFINISHED = "Expected to have finished reduction"  # how torch begins to say it


def _static_graph(run: RunConfig) -> Sequence[bool] | str:
    if run.parallel.section["find_unused_parameters"]:
        return "parallel.find_unused_parameters=true says that the graph changes"
    return [True]


def _looks_for_unused(run: RunConfig) -> Sequence[bool] | str:
    return [False] if run.parallel.section["find_unused_parameters"] else "looking for unused parameters takes time"


class ReplicasOption(ParallelOption):
    """A rank for each device, over torch.distributed."""

    rules: ClassVar = {"bucket_cap_mb": number(above=0), "broadcast_buffers": either(BOOLEAN, AUTO)}
    tunable: ClassVar = {
        "bucket_cap_mb": Tunable(COMMUNICATION, always(5, 25, 100)),
        "gradient_as_bucket_view": Tunable(COMMUNICATION, always(True)),
        "static_graph": Tunable(COMMUNICATION, _static_graph),
        "find_unused_parameters": Tunable(COMMUNICATION, _looks_for_unused),
    }

    def cause_of(self, error: str, *, unused: str) -> str:
        if UNFINISHED not in error:
            return ""
        if unused:
            return (
                f"{unused}, and DistributedDataParallel waits for one. Remove what is unused, or set "
                "parallel.find_unused_parameters=true."
            )
        return (
            "A parameter gets no gradient on some rank, though the baseline uses all of them. If the model skips "
            "parts of itself for some samples, set parallel.find_unused_parameters=true."
        )
