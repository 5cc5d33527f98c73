"""Declarations of parallel=dp: one process with several GPUs, and what its threads cannot do."""

from collections.abc import Sequence
from typing import ClassVar

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine import hardware
from manyheads.runner.option.rules import list_of, whole
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.parallel.exchanges import Exchanges
from manyheads.runner.parallel.mesh_layout import Layout
from manyheads.runner.parallel.parallel_option import ParallelOption


class DataParallelOption(ParallelOption):
    """One process. ``device_ids``: its GPUs, None for all; ``output_device``: gathers outputs, None for the first."""

    rules: ClassVar = {"device_ids": list_of(whole(0)), "output_device": whole(0)}
    one_process = True
    replicates = True
    color = "#e69f00"
    device_ids: Sequence[int] | None
    output_device: int | None

    def note(self) -> str:
        gpus = len(hardware.gpu_names())
        return f"{gpus} replicas" if gpus > 1 else "a single replica: without several GPUs the same as single"

    def check_run(self, run: RunConfig) -> None:
        super().check_run(run)
        gpus = len(hardware.gpu_names()) if run.on_gpus else 0
        if (compiled := run.trainer.compile) != "none":
            raise ConfigurationError.at(
                "trainer.compile",
                compiled,
                ": torch.compile can't compile DataParallel's replicas. Set "
                "trainer.compile=none, or parallel=single or ddp.",
            )
        ids, output = self.device_ids, self.output_device
        listed = [*(ids or []), output or 0]
        if [i for i in listed if i >= gpus] if gpus else ids or output:
            raise ConfigurationError.at(
                "parallel.device_ids",
                ids,
                f", parallel.output_device={output}: {gpus} GPUs can be used. Name only those, or set both to null.",
            )
        if gpus and run.precision.autocast(on_gpus=True) == "bfloat16" and len(ids or range(gpus)) > 1:
            # Its threads don't inherit autocast's dtype: torch/nn/parallel/parallel_apply.py.
            raise ConfigurationError.at(
                "precision",
                run.precision.name,
                ": torch's DataParallel computes in float16 on its "
                "replicas, whatever dtype autocast is set to. Set precision=amp precision.dtype=float16, or "
                "parallel=ddp.",
            )

    def exchanges(self, *, devices: int) -> Exchanges:
        return Exchanges(Layout(replicate=devices), copies=True)

    def gpus_used(self, *, ranks: int) -> int:
        return (
            len(hardware.gpu_names()) if self.device_ids is None else max(*self.device_ids, self.output_device or 0) + 1
        )

    def devices(self, *, ranks: int | None, gpus: int) -> int | None:
        return len(self.device_ids or range(gpus)) if gpus else ranks
