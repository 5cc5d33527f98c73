"""data=tokens: text that is tokenized already, in files as nanoGPT, llm.c and Megatron write them."""

import hashlib
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, ClassVar

from manyheads.runner.data.data_option import Data, DataOption, Dataset, TokenBlocks
from manyheads.runner.data.links import boundary
from manyheads.runner.data.shard_names import chosen
from manyheads.runner.data.token_files import TokenFile, inspect
from manyheads.runner.data.tokenizing import cached, digest_of
from manyheads.runner.errors import ConfigurationError, printable
from manyheads.runner.option.rules import TEXT, choice, whole

SPLITS = ("train", "val", "test")
JOINED, SEPARATE = "joined", "separate"
AT_ONCE = 2**24  # tokens that are checked at once


class TokensOption(DataOption):
    """Declares which files train, validate and test, and whether documents may share blocks."""

    most_workers = 2
    rules: ClassVar = {
        **{f"{split}_shards": TEXT for split in SPLITS},
        "block_size": whole(1),
        "vocab_size": whole(2),
        "documents": choice(JOINED, SEPARATE),
        "end_token": whole(0),
        "max_tokens": whole(2),
    }
    root: str
    documents: str
    end_token: int | None

    def check_keys(self) -> None:
        super().check_keys()
        for split in SPLITS:
            files = shards(Path(self.root), split, self.section[f"{split}_shards"], may_lack=split == "test")
            if self.documents == SEPARATE and self.end_token is None:
                for each in files:
                    if each.ends is None:
                        raise ConfigurationError.at(
                            "data.documents",
                            SEPARATE,
                            f": {printable(each.path)} does not say where documents end. Set data.end_token to the "
                            "token that ends them, or data.documents to joined.",
                        )


class Tokens(Data):
    """Blocks of ``block_size`` tokens of the files below ``root``, and the next tokens as labels.

    ``documents``: "joined": those in a block are treated as one; "separate": no token is predicted from, or attends to,
    another document. ``end_token``: ends a document, None to take the ends from the index. ``vocab_size``: one more
    than the highest possible token.
    """

    def __init__(
        self,
        *,
        root: str,
        train_shards: str,
        val_shards: str,
        test_shards: str,
        vocab_size: int,
        block_size: int,
        documents: str,
        end_token: int | None,
        max_tokens: int | None,
    ):
        self.root, self.num_classes, self.block_size = Path(root), vocab_size, block_size
        self.patterns = dict(zip(SPLITS, (train_shards, val_shards, test_shards), strict=True))
        self.documents, self.end_token, self.max_tokens = documents, end_token, max_tokens

    @property
    def classes_in_words(self) -> str:
        return f"{self.block_size} tokens each, of {self.num_classes}"

    def split(self, *, train: bool) -> TokenBlocks | Dataset:
        return self._blocks("train" if train else "val")

    def test(self) -> TokenBlocks | Dataset | None:
        return self._blocks("test") if shards(self.root, "test", self.patterns["test"], may_lack=True) else None

    def _blocks(self, split: str) -> TokenBlocks | Dataset:
        files = shards(self.root, split, self.patterns[split])
        digest = self._digest(files)
        row = joined([each.tokens() for each in files])
        row = row if self.max_tokens is None else row[: self.max_tokens]
        if len(row) <= self.block_size:
            raise ConfigurationError.at(
                "data.block_size",
                self.block_size,
                f": the {split} split has {len(row)} tokens, but a block needs one token more than its size. "
                "Lower it, or give more tokens.",
            )
        blocks = TokenBlocks(row, self.block_size, digest)
        if self.documents == JOINED:
            return blocks
        from manyheads.runner.data.rank.tokens import Packed  # imports torch, which the parent does without

        return Packed(blocks, self._ends(files))

    def _digest(self, files: Sequence[TokenFile]) -> str:
        """The sha256 of all tokens, which are checked once on this machine. Raises ConfigurationError."""
        import numpy as np

        stats = [(str(each.path.absolute()), each.path.stat()) for each in files]
        states = [(name, each.st_size, each.st_mtime_ns, each.st_ctime_ns) for name, each in stats]
        about = ["checked", self.num_classes, states]
        return cached(digest_of(about), lambda: (np.zeros(1, np.uint8), self._checked(files)))[1]

    def _checked(self, files: Sequence[TokenFile]) -> str:
        """The sha256 of all tokens. Raises ConfigurationError for one beyond the vocabulary."""
        digest = hashlib.sha256()
        for each in files:
            tokens = each.tokens()
            for first in range(0, len(tokens), AT_ONCE):
                part = tokens[first : first + AT_ONCE]
                digest.update(part.tobytes())
                wrong = (part >= self.num_classes) | (part < 0)
                if wrong.any():
                    place = int(wrong.argmax())
                    raise ConfigurationError.at(
                        "data.vocab_size",
                        self.num_classes,
                        f": {printable(each.path)} has the token {part[place]} at position {first + place:,}. Set it "
                        "to one more than the highest token of the tokenizer.",
                    )
        return digest.hexdigest()

    def _ends(self, files: Sequence[TokenFile]) -> Any:
        """The positions at which documents end, in all files together, in order, each once."""
        import numpy as np

        found, before = [np.zeros(0, np.int64)], 0
        for each in files:
            own = each.ends if self.end_token is None else np.flatnonzero(each.tokens() == self.end_token) + 1
            assert own is not None
            found.append(np.append(own, each.count) + before)
            before += each.count
        return np.unique(np.concatenate(found))


def shards(root: Path, split: str, pattern: str, *, may_lack: bool = False) -> list[TokenFile]:
    """The files of a split, by their names below ``root``. Raises ConfigurationError."""
    names = sorted(path.relative_to(root).as_posix() for path in root.rglob("*.bin"))
    if not names:
        raise ConfigurationError.at(
            "data.root", root, ": no file below it ends in .bin. Set it to the folder of the token files."
        )
    within = boundary(root)
    return [inspect(root / names[each], within) for each in chosen(split, pattern, names, may_lack=may_lack)]


class Joined:
    """Concatenated arrays, read by slices; they are never copied as a whole."""

    def __init__(self, parts: Sequence[Any]):
        self.parts = parts
        self.starts = [0, *accumulate(map(len, parts))]

    def __len__(self) -> int:
        return self.starts[-1]

    def __getitem__(self, wanted: slice) -> Any:
        import numpy as np

        first, last, _ = wanted.indices(len(self))
        pieces = [
            part[max(first - start, 0) : max(last - start, 0)]
            for part, start in zip(self.parts, self.starts, strict=False)
            if start < last and start + len(part) > first
        ]
        return pieces[0] if len(pieces) == 1 else np.concatenate([*pieces, self.parts[0][:0]])


def joined(parts: Sequence[Any]) -> Any:
    """The arrays as one that can be sliced."""
    return parts[0] if len(parts) == 1 else Joined(parts)
