"""What options have in common whose samples are images with classes, or text, whichever the files hold."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from manyheads.runner.data.data_option import NamedSplits
from manyheads.runner.data.samples import ImageFiles, TokenBlocks
from manyheads.runner.data.tokenizing import Bytes, blocks_of_texts


@dataclass(kw_only=True, eq=False)
class ImagesOrText(NamedSplits):
    """Images, cropped to squares of ``image_size`` pixels per side, or text in blocks of tokens.

    ``train_image_size``, ``val_resize``: as in ``ImageFiles``; ``tokenizer``: an object with ``encode(text)`` and
    ``vocab_size``, None for bytes.
    """

    image_size: int
    train_image_size: int | None
    val_resize: int | None
    tokenizer: Any

    mean = (0.485, 0.456, 0.406)
    std = (0.229, 0.224, 0.225)

    def __post_init__(self) -> None:
        self.tokenizer = Bytes() if self.tokenizer is None else self.tokenizer

    def images(
        self,
        files: Sequence[str | bytes],
        targets: Sequence[int],
        *,
        train: bool,
        classes: Sequence[str] | None,
        within: str | None = None,
    ) -> ImageFiles:
        """Samples that are images. See ``ImageFiles``."""
        sizes: dict[str, Any] = {"train_size": self.train_image_size, "resize": self.val_resize}
        return ImageFiles(files, targets, self.image_size, train, classes, **sizes, within=within)

    def blocks(self, texts: Iterable[str], size: int, *, about: list[Any], of: str, key: str) -> TokenBlocks:
        """Samples that are blocks of text. See ``blocks_of_texts``."""
        return blocks_of_texts(texts, self.tokenizer, size, about=about, of=of, key=key)
