"""Declarations of precision=apex."""

from typing import ClassVar

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine import apex_installation
from manyheads.runner.option.rules import BOOLEAN, choice, either, number
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.precision.precision_option import PrecisionOption, Reloading


class ApexOption(PrecisionOption):
    """Apex's automatic mixed precision, for GPUs."""

    rules: ClassVar = {
        "opt_level": choice("O0", "O1", "O2", "O3"),
        "loss_scale": either(number(above=0), choice("dynamic")),
        "keep_batchnorm_fp32": BOOLEAN,
        "master_weights": BOOLEAN,
    }
    unscales_in_backward = True
    opt_level: str
    keep_batchnorm_fp32: bool | None
    master_weights: bool | None

    def unavailable(self) -> str | None:
        return apex_installation.unavailable("amp")

    def note(self) -> str:
        return apex_installation.note()

    def check_run(self, run: RunConfig) -> None:
        super().check_run(run)
        apex_installation.refuse_cpu(run.trainer.device, f"precision={self.name}", "amp")
        if run.parallel.replicates:  # the forward that amp.initialize patches is the original's
            raise ConfigurationError.at(
                "precision",
                "apex",
                f" does not work with parallel={run.parallel.name}. "
                f"Set parallel to single, ddp, horovod, apex, or use {apex_installation.NATIVE['amp']}.",
            )
        if (compiled := run.trainer.compile) != "none":
            raise ConfigurationError.at(
                "trainer.compile",
                compiled,
                f": precision=apex patches functions that torch.compile traces. Set "
                f"trainer.compile=none, or use {apex_installation.NATIVE['amp']}.",
            )
        for key in ("keep_batchnorm_fp32", "master_weights"):
            if self.opt_level == "O1" and (value := getattr(self, key)) is not None:
                raise ConfigurationError.at(
                    f"precision.{key}",
                    value,
                    ": with precision.opt_level=O1 all weights are fp32. Set it to null, or precision.opt_level=O2.",
                )

    def scales_gradients(self, *, on_gpus: bool) -> bool:
        return True

    def reloads_optimizer(self) -> Reloading | None:
        level = self.opt_level
        return None if level == "O1" else Reloading(f"precision.opt_level={level}", "precision.opt_level=O1")
