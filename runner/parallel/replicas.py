"""What strategies declare whose ranks hold a replica of the model each."""

from typing import ClassVar

from manyheads.runner.option.rules import AUTO, BOOLEAN, COMMUNICATION, Tunable, always, either, never, number
from manyheads.runner.parallel.exchanges import MEGABYTE, Exchanges
from manyheads.runner.parallel.mesh_layout import Layout
from manyheads.runner.parallel.parallel_option import SENT, ParallelOption

UNFINISHED = "Expected to have finished reduction"  # how torch begins to say it


class ReplicasOption(ParallelOption):
    """A rank for each device, over torch.distributed."""

    rules: ClassVar = {"bucket_cap_mb": number(above=0), "broadcast_buffers": either(BOOLEAN, AUTO)}
    tunable: ClassVar = {
        "bucket_cap_mb": Tunable(COMMUNICATION, always(5, 25, 100)),
        "gradient_as_bucket_view": Tunable(COMMUNICATION, always(True)),
        "static_graph": Tunable(COMMUNICATION, always(True)),
        "find_unused_parameters": Tunable(COMMUNICATION, never("who sets it has parameters without gradients")),
    }

    bucket_cap_mb: float

    def exchanges(self, *, devices: int) -> Exchanges:
        if self.compression not in SENT:
            reason = "how many bytes it sends depends on the shapes of the weights"
            raise self.unpredictable(reason, key="parallel.compression", value=self.compression)
        return Exchanges(
            Layout(replicate=devices),
            overlaps=True,
            bucket_bytes=self.bucket_cap_mb * MEGABYTE,
            gradient_scale=SENT[self.compression],
        )

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
