"""What parallel=local_sgd declares."""

from typing import Any, ClassVar

from manyheads.runner.option.declared import declared
from manyheads.runner.option.rules import whole
from manyheads.runner.parallel.replicas.option import ReplicasOption
from manyheads.runner.run.errors import ConfigurationError


class LocalSGDOption(ReplicasOption):
    """Replicas that differ between averagings, so that it computes something else than one process does."""

    rules: ClassVar = {"period": whole(1), "start": whole(0)}
    color = "#999933"
    is_exact = False

    def complete(self, config: dict[str, Any]) -> None:
        super().complete(config)
        precision, on_gpus = declared("precision", config["precision"]), config["trainer"]["device"] != "cpu"
        if precision.half_weights(on_gpus=on_gpus) or precision.reloads_optimizer():
            raise ConfigurationError(
                f"precision={config['precision']['name']}: parallel=local_sgd averages the weights that the model "
                "computes with, but not their fp32 copies. Set precision=bf16, or precision=amp with "
                "precision.level=O1."
            )
