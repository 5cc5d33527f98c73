"""Declarations of parallel=local_sgd."""

from dataclasses import replace
from typing import ClassVar

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.rules import whole
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.parallel.exchanges import Exchanges
from manyheads.runner.parallel.parallel_option import ReplicasOption


class LocalSGDOption(ReplicasOption):
    """Replicas that differ between averagings, so that the result is not that of one process."""

    rules: ClassVar = {"period": whole(1), "start": whole(0)}
    color = "#8c6238"
    is_exact = False
    period: int

    def exchanges(self, *, devices: int) -> Exchanges:
        """The communication after the first ``start`` updates, in which it is that of ``ddp``."""
        return replace(super().exchanges(devices=devices), period=self.period)

    def check_run(self, run: RunConfig) -> None:
        super().check_run(run)
        if run.precision.half_weights(on_gpus=run.on_gpus) or run.precision.reloads_optimizer():
            raise ConfigurationError.at(
                "precision",
                run.precision.name,
                ": parallel=local_sgd averages the weights that the model "
                "computes with, but not their fp32 copies. Set precision=bf16, or precision=amp with "
                "precision.level=O1.",
            )
