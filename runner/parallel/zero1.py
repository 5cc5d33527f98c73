"""Declarations of parallel=zero1."""

from dataclasses import replace

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.parallel.exchanges import Exchanges
from manyheads.runner.parallel.parallel_option import ReplicasOption


class Zero1Option(ReplicasOption):
    """Replicas, of which each has the optimizer's state for a part of the parameters."""

    color = "#56b4e9"
    saves_memory = True
    own_steps = True

    def exchanges(self, *, devices: int) -> Exchanges:
        return replace(super().exchanges(devices=devices), shards_optimizer=True)

    def check_run(self, run: RunConfig) -> None:
        super().check_run(run)
        if run.precision.half_weights(on_gpus=run.on_gpus) or run.precision.reloads_optimizer():
            raise ConfigurationError.at(
                "precision",
                run.precision.name,
                ": parallel=zero1 shards the state of the weights that the "
                "model computes with, but not of their fp32 copies. Set precision=bf16, or precision=amp with "
                "precision.level=O1.",
            )
