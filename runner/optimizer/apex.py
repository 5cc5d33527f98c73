"""Declarations of the fused optimizers of NVIDIA Apex."""

from typing import ClassVar

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine import apex_installation
from manyheads.runner.machine.apex_installation import NATIVE
from manyheads.runner.optimizer.optimizer_option import OptimizerOption
from manyheads.runner.option.rules import KeyKind, Rule, is_whole, number
from manyheads.runner.option.run_config import RunConfig


class FusedOption(OptimizerOption):
    """An optimizer that consists of Apex's kernels, for GPUs."""

    rules: ClassVar = {"max_grad_norm": number(above=0)}

    def unavailable(self) -> str | None:
        return apex_installation.unavailable("optimizers")

    def note(self) -> str:
        return apex_installation.note()

    def check_run(self, run: RunConfig) -> None:
        apex_installation.refuse_cpu(run.trainer.device, f"optimizer={self.name}", "optimizers")
        if run.precision.weights_dtype == "float64":
            raise ConfigurationError.at(
                "optimizer",
                self.name,
                f": Apex's kernels do not support fp64; FusedSGD would leave such "
                f"weights unchanged. Use {NATIVE['optimizers']}, or precision=fp32.",
            )


class FusedNovoGradOption(FusedOption):
    """NovoGrad, whose load_state_dict needs norms that its first step creates."""

    rules: ClassVar = {
        "norm_type": Rule("2 or 0", lambda v: is_whole(v) and v in (0, 2), {"enum": [2, 0]}, KeyKind.NUMBER)
    }

    def check_run(self, run: RunConfig) -> None:
        super().check_run(run)
        if setting := run.precision.reloads_optimizer():  # as amp.initialize does
            raise ConfigurationError(
                f"{setting.key}: FusedNovoGrad cannot load its state before its first step, as this setting makes it "
                f"do. Set {setting.other}, or optimizer=fused_lamb."
            )
