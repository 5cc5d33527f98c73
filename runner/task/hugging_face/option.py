"""What task=hugging_face declares."""

from typing import Any, ClassVar

from manyheads.runner.option.declared import declared
from manyheads.runner.option.rules import choice
from manyheads.runner.run.errors import ConfigurationError
from manyheads.runner.task.option import TaskOption

OF_TOKENS = ("loss", "perplexity")
MEASURES = {"samples": ("loss", "acc1", "acc5"), "tokens": OF_TOKENS, "next_tokens": OF_TOKENS}


class HuggingFaceOption(TaskOption):
    """The model's own loss."""

    rules: ClassVar = {"loss_over": choice(*MEASURES)}
    loss = None

    def __init__(self, section: dict[str, Any]):
        super().__init__(section)
        self.measures = MEASURES.get(section.get("loss_over", ""))  # type: ignore[misc]

    def complete(self, config: dict[str, Any]) -> None:
        super().complete(config)
        strategy = config["parallel"]
        if declared("parallel", strategy).replicates and config["trainer"]["device"] == "cuda":
            raise ConfigurationError(
                f"task=hugging_face: parallel={strategy['name']} has a replica on each GPU, each with its own mean "
                "loss over an unknown number of elements. Set parallel=ddp."
            )
