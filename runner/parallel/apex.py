"""Declarations of parallel=apex."""

from typing import ClassVar

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine import apex_installation
from manyheads.runner.option.rules import COMMUNICATION, Tunable, always, whole
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.parallel.exchanges import Exchanges
from manyheads.runner.parallel.mesh_layout import Layout
from manyheads.runner.parallel.parallel_option import ParallelOption

FP32 = 4  # bytes


class ApexDistributedDataParallelOption(ParallelOption):
    """Apex's DistributedDataParallel, for GPUs."""

    rules: ClassVar = {"message_size": whole(1)}
    tunable: ClassVar = {
        "message_size": Tunable(COMMUNICATION, always(2_000_000, 10_000_000, 40_000_000)),
        "delay_allreduce": Tunable(COMMUNICATION, always(False)),
    }
    color = "#009e73"
    message_size: int
    delay_allreduce: bool

    def exchanges(self, *, devices: int) -> Exchanges:
        bucket = self.message_size * FP32  # elements, of weights in fp32
        return Exchanges(Layout(replicate=devices), overlaps=not self.delay_allreduce, bucket_bytes=bucket)

    def unavailable(self) -> str | None:
        return apex_installation.unavailable("parallel")

    def note(self) -> str:
        return apex_installation.note() or super().note()

    def installed(self) -> dict[str, str]:
        return {"Apex": apex_installation.description() or "not installed"}

    def versions(self) -> dict[str, str | None]:
        return {"apex": apex_installation.description()}

    def check_run(self, run: RunConfig) -> None:
        super().check_run(run)
        apex_installation.refuse_cpu(run.trainer.device, f"parallel={self.name}", "parallel")
        if (compiled := run.trainer.compile) != "none":
            raise ConfigurationError.at(
                "trainer.compile",
                compiled,
                ": parallel=apex fills its buckets with hooks that torch.compile does "
                "not see. Set trainer.compile=none, or use parallel=ddp.",
            )
