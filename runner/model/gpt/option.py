"""What model=gpt declares."""

from typing import ClassVar

from manyheads.runner.model.gpt.sizes import SIZES, Size
from manyheads.runner.model.option import ModelOption
from manyheads.runner.option.rules import choice, whole
from manyheads.runner.run.errors import ConfigurationError


class GPTOption(ModelOption):
    """A language model without dropout or BatchNorm."""

    rules: ClassVar = {"size": choice(*SIZES), "depth": whole(1), "width": whole(2), "heads": whole(1)}
    treats_samples_alone = True
    size: str
    depth: int | None
    width: int | None
    heads: int | None

    def check_keys(self) -> None:
        size = SIZES[self.size]
        _, width, heads = Size(*(getattr(self, key) or getattr(size, key) for key in Size._fields))
        if width % (2 * heads):
            fitting = [count for count in range(1, width + 1) if width % (2 * count) == 0]
            raise ConfigurationError(
                f"model.width={width} can't be divided among model.heads={heads}: each head needs an even width. "
                f"Set model.heads to one of {', '.join(map(str, fitting)) or 'an even width'}."
            )
