"""What parallel=apex declares."""

from typing import ClassVar

from manyheads.runner.machine import apex
from manyheads.runner.option.rules import whole
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.parallel.base.option import ParallelOption
from manyheads.runner.run.errors import ConfigurationError


class ApexDistributedDataParallelOption(ParallelOption):
    """Apex's DistributedDataParallel, for GPUs."""

    rules: ClassVar = {"message_size": whole(1)}
    color = "#009e73"

    def unavailable(self) -> str | None:
        return apex.unavailable("parallel")

    def note(self) -> str:
        return apex.note() or super().note()

    def installed(self) -> dict[str, str]:
        return {"Apex": apex.description() or "not installed"}

    def versions(self) -> dict[str, str | None]:
        return {"apex": apex.description()}

    def check_run(self, run: RunConfig) -> None:
        super().check_run(run)
        apex.refuse_cpu(run.trainer.device, f"parallel={self.name}", "parallel")
        if (compiled := run.trainer.compile) != "none":
            raise ConfigurationError(
                f"trainer.compile={compiled}: parallel=apex fills its buckets with hooks that torch.compile does "
                "not see. Set trainer.compile=none, or use parallel=ddp."
            )
