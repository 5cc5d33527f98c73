"""The named sizes of model=gpt, available without torch."""

from typing import ClassVar, NamedTuple

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.model.model_option import ModelOption
from manyheads.runner.option.rules import choice, whole


class GPTSize(NamedTuple):
    """The size of a model. ``depth``: number of blocks; ``width``: features per token; ``heads``: attention heads."""

    depth: int
    width: int
    heads: int


# From small to xl as in Radford et al. 2019 (GPT-2), 3b and 7b as in Brown et al. 2020 (GPT-3, 2.7B and 6.7B).
SIZES = {
    "nano": GPTSize(4, 48, 6),
    "mini": GPTSize(6, 192, 6),
    "small": GPTSize(12, 768, 12),
    "medium": GPTSize(24, 1024, 16),
    "large": GPTSize(36, 1280, 20),
    "xl": GPTSize(48, 1600, 25),
    "3b": GPTSize(32, 2560, 32),
    "7b": GPTSize(32, 4096, 32),
}


class GPTOption(ModelOption):
    """A language model without dropout or BatchNorm."""

    rules: ClassVar = {"size": choice(*SIZES), "depth": whole(1), "width": whole(2), "heads": whole(1)}
    treats_samples_alone = True
    size: str
    depth: int | None
    width: int | None
    heads: int | None

    def check_keys(self) -> None:
        width, heads = self.width or SIZES[self.size].width, self.heads or SIZES[self.size].heads
        if width % (2 * heads):
            fitting = [count for count in range(1, width + 1) if width % (2 * count) == 0]
            remedy = f"model.heads to one of {', '.join(map(str, fitting))}" if fitting else "an even model.width"
            raise ConfigurationError.at(
                "model.width",
                width,
                f" can't be divided among model.heads={heads}: each head needs an even width. Set {remedy}.",
            )
