"""data=tokens: text that is tokenized already, in files as nanoGPT, llm.c and Megatron write them."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from manyheads.runner.data.read_ahead import ReadAhead
from manyheads.runner.data.samples import Dataset, TokenBlocks
from manyheads.runner.data.sharded import Sharded, ShardedOption
from manyheads.runner.data.shards.files import BLOCK
from manyheads.runner.data.shards.folders import Folder, LocalFolder, StoredFolder
from manyheads.runner.data.shards.index import TOKENS
from manyheads.runner.data.token_files import Joined, TokenFile, index_of, inspect
from manyheads.runner.data.tokenizing import cached, digest_of
from manyheads.runner.errors import ConfigurationError, printable
from manyheads.runner.option.rules import choice, whole

JOINED, SEPARATE = "joined", "separate"
AT_ONCE = 2**24  # tokens that are checked at once


class TokensOption(ShardedOption):
    """Declares whether documents may share blocks, and where they end."""

    most_workers = 2
    shards = TOKENS
    rules: ClassVar = {
        "block_size": whole(1),
        "vocab_size": whole(2),
        "documents": choice(JOINED, SEPARATE),
        "end_token": whole(0),
        "max_tokens": whole(2),
    }
    documents: str
    end_token: int | None
    vocab_size: int

    def check_keys(self) -> None:
        super().check_keys()
        with self.folder() as folder:
            names = self.read_names(folder)
            files = opened(folder, names)
            if isinstance(folder, StoredFolder):
                check_vocabulary(folder, names, self.vocab_size)
        if self.documents == SEPARATE and self.end_token is None:
            for file in files:
                if file.ends is None:
                    raise ConfigurationError.at(
                        "data.documents",
                        SEPARATE,
                        f": {file.file.name} does not say where documents end. Set data.end_token to the "
                        "token that ends them, or data.documents to joined.",
                    )


@dataclass(kw_only=True, eq=False)
class Tokens(Sharded):
    """Blocks of ``block_size`` tokens, and the next tokens as labels.

    ``documents``: "joined": those in a block are treated as one; "separate": no token is predicted from, or attends to,
    another document. ``end_token``: ends a document, None to take the ends from the index. ``vocab_size``: one more
    than the highest possible token.
    """

    shards = TOKENS
    vocab_size: int
    block_size: int
    documents: str
    end_token: int | None
    max_tokens: int | None

    @property
    def num_classes(self) -> int:
        return self.vocab_size

    @property
    def classes_in_words(self) -> str:
        return f"{self.block_size} tokens each, of {self.num_classes}"

    def samples(self, split: str) -> TokenBlocks | Dataset | None:
        names = self.names(split)
        if split == "test" and not names:
            return None
        files = opened(self.folder, names)
        digest = self._digest(files, names)
        parts = [file.tokens() for file in _limited(files, self.max_tokens)]
        row: Any = parts[0] if len(parts) == 1 else Joined(parts)
        if len(row) <= self.block_size:
            raise ConfigurationError.at(
                "data.block_size",
                self.block_size,
                f": the {split} split has {len(row)} tokens, but a block needs one token more than its size. "
                "Lower it, or give more tokens.",
            )
        blocks = TokenBlocks(row, self.block_size, digest, self._read_ahead(row))
        if self.documents == JOINED:
            return blocks
        from manyheads.runner.data.rank.tokens import PackedDocuments  # imports torch, which the parent does without

        return PackedDocuments(blocks, self._ends(files), self.end_token)

    def _read_ahead(self, row: Any) -> ReadAhead | None:
        size = self.block_size

        def fetch(indices: Any) -> None:
            for index in indices.tolist():
                row.fetch_ahead(slice(index * size, (index + 1) * size + 1))

        return None if isinstance(self.folder, LocalFolder) else ReadAhead(self.read_ahead, fetch)

    def _digest(self, files: Sequence[TokenFile], names: Sequence[str]) -> str:
        """The sha256 of all tokens; in object storage, of the files' names and the checksums of their blocks.

        Raises ConfigurationError for a token beyond the vocabulary. Files in a folder are read once per machine.
        """
        import numpy as np

        states = self.folder.states(names)
        if isinstance(self.folder, StoredFolder):
            check_vocabulary(self.folder, names, self.vocab_size)
            return hashlib.sha256(repr(states).encode(errors="surrogateescape")).hexdigest()
        key = digest_of(["checked", self.vocab_size, states])
        return cached(key, lambda: (np.zeros(1, np.uint8), self._checked(files)))[1]

    def _checked(self, files: Sequence[TokenFile]) -> str:
        """The sha256 of all tokens. Raises ConfigurationError for one beyond the vocabulary."""
        digest = hashlib.sha256()
        for file in files:
            tokens = file.tokens()
            for first in range(0, len(tokens), AT_ONCE):
                part = tokens[first : first + AT_ONCE]
                digest.update(part.tobytes())
                wrong = (part >= self.vocab_size) | (part < 0)
                if wrong.any():
                    position = int(wrong.argmax())
                    raise _beyond(self.vocab_size, file.file.name, part[position], f"at position {first + position:,}")
        return digest.hexdigest()

    def _ends(self, files: Sequence[TokenFile]) -> Any:
        """The positions at which files end, and documents as their index says, in order, each once."""
        import numpy as np

        arrays, before = [np.zeros(0, np.int64)], 0
        for file in files:
            ends: Any = [] if self.end_token is not None or file.ends is None else file.ends
            arrays.append(np.append(ends, file.count).astype(np.int64) + before)
            before += file.count
        return np.unique(np.concatenate(arrays))


def opened(folder: Folder, names: Sequence[str]) -> list[TokenFile]:
    """The files of a folder with these names. Raises ConfigurationError."""
    files = []
    for name in names:
        index = index_of(name)
        try:
            files.append(inspect(folder.file(name), folder.file(index) if folder.has(index) else None))
        except OSError as error:
            raise ConfigurationError(f"{printable(name)} cannot be read: {error.strerror}.") from None
    return files


def check_vocabulary(folder: StoredFolder, names: Sequence[str], size: int) -> None:
    """Raises ConfigurationError for a token that is beyond a vocabulary of ``size``, as the index says."""
    for name in names:
        token, block = folder.highest(name)
        if token >= size:
            where = f"in bytes {block * BLOCK} to {(block + 1) * BLOCK}"
            raise _beyond(size, printable(f"{folder.root}/{name}"), token, where)


def _beyond(size: int, name: str, token: Any, position: str) -> ConfigurationError:
    return ConfigurationError.at(
        "data.vocab_size",
        size,
        f": {name} has the token {token} {position}. Set it to one more than the highest token of the tokenizer.",
    )


def _limited(files: Sequence[TokenFile], most: int | None) -> list[TokenFile]:
    """The files up to their first ``most`` tokens."""
    selection, left = [], sum(file.count for file in files) if most is None else most
    for file in files:
        selection.append(replace(file, count=min(file.count, left)))
        left -= selection[-1].count
    return selection
