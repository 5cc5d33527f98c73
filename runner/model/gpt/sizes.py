"""The named sizes of model=gpt, available without torch."""

from typing import NamedTuple


class Size(NamedTuple):
    """The size of a model. ``depth``: number of blocks; ``width``: features per token; ``heads``: attention heads."""

    depth: int
    width: int
    heads: int


# From small to xl as in Radford et al. 2019 (GPT-2), 3b and 7b as in Brown et al. 2020 (GPT-3, 2.7B and 6.7B).
SIZES = {
    "nano": Size(4, 48, 6),
    "mini": Size(6, 192, 6),
    "small": Size(12, 768, 12),
    "medium": Size(24, 1024, 16),
    "large": Size(36, 1280, 20),
    "xl": Size(48, 1600, 25),
    "3b": Size(32, 2560, 32),
    "7b": Size(32, 4096, 32),
}
