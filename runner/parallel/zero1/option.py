"""What parallel=zero1 declares."""

from typing import Any

from manyheads.runner.option.declared import declared
from manyheads.runner.parallel.replicas.option import ReplicasOption
from manyheads.runner.run.errors import ConfigurationError


class Zero1Option(ReplicasOption):
    """Replicas, of which each has the optimizer's state for a part of the parameters."""

    color = "#56b4e9"

    def complete(self, config: dict[str, Any]) -> None:
        super().complete(config)
        precision = declared("precision", config["precision"])
        if precision.half_weights(on_gpus=config["trainer"]["device"] != "cpu") or precision.reloads_optimizer():
            raise ConfigurationError(
                f"precision={config['precision']['name']}: parallel=zero1 shards the state of the weights that the "
                "model computes with, but not of their fp32 copies. Set precision=bf16, or precision=amp with "
                "precision.level=O1."
            )
