"""Turns files into one array of tokens, once, in the user's cache, from where all processes map it into memory."""

import hashlib
import inspect
import io
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manyheads.runner.data.links import content_of
from manyheads.runner.data.samples import TokenBlocks
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine.user_folders import cache_folder
from manyheads.runner.run.files import in_turn, whole_file, write_whole

if TYPE_CHECKING:  # the parent, which only looks for the files, starts without it
    import numpy as np

Files = Mapping[str, Path]  # by name, in the order of the names
END = 0  # the byte between two files, which no text has


class Bytes:
    """Each byte is a token, and the byte 0 stands between two files."""

    vocab_size = 256


def vocabulary(tokenizer: Any) -> int:
    """The size of a tokenizer's vocabulary. Raises ConfigurationError if the tokenizer does not say."""
    for name in ("vocab_size", "get_vocab_size"):
        size = getattr(tokenizer, name, None)
        if size is not None:
            count = int(size() if callable(size) else size)
            return max(count, len(tokenizer)) if hasattr(tokenizer, "__len__") else count  # added tokens included
    raise ConfigurationError(
        f"data.tokenizer: {type(tokenizer).__name__} has neither vocab_size nor get_vocab_size(). Add one of them.",
        key="data.tokenizer",
    )


def tokens(files: Files, tokenizer: Any, within: str | None = None) -> "tuple[np.ndarray, str]":
    """The files' tokens in one array, and their sha256. ``within``: the boundary that the files must be in.

    Raises ConfigurationError.
    """
    about = known_by(tokenizer)
    for name, path in files.items():
        status = path.stat()
        about.append((name, str(path.absolute()), status.st_size, status.st_mtime_ns, status.st_ctime_ns))
    return cached(digest_of(about), lambda: _made(files, tokenizer, within))


def cached(key: str, make: "Callable[[], tuple[np.ndarray, str]]") -> "tuple[np.ndarray, str]":
    """The result of ``make``, computed once on this machine. ``key``: a digest of all that it depends on."""
    if (folder := cache_folder("tokens")) is None:
        return make()
    try:
        with in_turn(folder / f".{key}.lock"):
            return _read(folder, key) or _kept(folder, key, *make())
    except OSError:  # a cache that is full or can't be written: each process computes it
        return make()


def digest_of(about: list[Any]) -> str:
    """The cache key of tokens that depend on all this."""
    return hashlib.sha256(repr(about).encode(errors="surrogateescape")).hexdigest()[:32]


def known_by(tokenizer: Any) -> list[Any]:
    """What identifies a tokenizer: its code, its attributes and its vocabulary."""
    about: list[Any] = [1, f"{type(tokenizer).__module__}.{type(tokenizer).__qualname__}"]
    with suppress(OSError, TypeError):
        about.append(inspect.getsource(type(tokenizer)))
    about.append(sorted((k, str(v)) for k, v in getattr(tokenizer, "__dict__", {}).items() if isinstance(v, _PLAIN)))
    if callable(words := getattr(tokenizer, "get_vocab", None)):
        about.append(sorted(words().items()))
    return about


_PLAIN = (str, int, float, bool, list, tuple, dict, type(None))


def _made(files: Files, tokenizer: Any, within: str | None) -> "tuple[np.ndarray, str]":
    import numpy as np

    if isinstance(tokenizer, Bytes):
        row = np.frombuffer(bytes([END]).join(_content(path, within) for path in files.values()), np.uint8)
    else:
        size = vocabulary(tokenizer)
        kind: type = np.uint16 if size <= 2**16 else np.int32
        parts: list[Any] = [np.asarray(_encoded(path, tokenizer, size, within), kind) for path in files.values()]
        row = np.concatenate(parts or [np.zeros(0)])
    return row, hashlib.sha256(row.tobytes()).hexdigest()


def _content(path: Path, within: str | None) -> bytes:
    try:
        return content_of(path, within=within, most=sys.maxsize)
    except ConfigurationError:  # which is a ValueError
        raise
    except ValueError:
        raise ConfigurationError(f"{path} is not a plain file. Remove it.") from None


def _encoded(path: Path, tokenizer: Any, size: int, within: str | None) -> list[int]:
    """One file's tokens, followed by the end token."""
    try:
        text = io.TextIOWrapper(io.BytesIO(_content(path, within)), encoding="utf-8").read()
    except UnicodeDecodeError as error:
        raise ConfigurationError(
            f"{path} is not UTF-8 ({error.reason} at byte {error.start}). Convert or remove it, or leave out "
            "data.tokenizer for bytes."
        ) from None
    return encoded(text, tokenizer, size, of=str(path))


def end_of(tokenizer: Any) -> int | None:
    """The token that ends a text; None if there is no such token."""
    end = END if isinstance(tokenizer, Bytes) else getattr(tokenizer, "eos_token_id", None)
    return None if end is None else int(end)


def encoded(text: str, tokenizer: Any, size: int, *, of: str) -> list[int]:
    """A text's tokens, followed by the end token if the tokenizer has one. ``of``: which text, for the error."""
    encoding = tokenizer.encode(text)
    numbers = list(getattr(encoding, "ids", encoding))  # what the library tokenizers returns, or a list
    if (end := getattr(tokenizer, "eos_token_id", None)) is not None:
        numbers.append(end)
    if numbers and not 0 <= min(numbers) <= max(numbers) < size:
        raise ConfigurationError(
            f"data.tokenizer: {type(tokenizer).__name__} returned the token {max(numbers)} for {of}, but its "
            f"vocab_size is {size}. Correct its vocab_size.",
            key="data.tokenizer",
        )
    return numbers


def blocks_of_texts(
    texts: Iterable[str], tokenizer: Any, size: int, *, about: list[Any], of: str, key: str
) -> TokenBlocks:
    """Texts, each followed by the end token, in blocks of ``size`` tokens. ``about``: all that they depend on.

    ``of``, ``key``: the split and the key of the size, for errors. Raises ConfigurationError.
    """
    row, digest = cached(digest_of([*known_by(tokenizer), *about]), lambda: _in_a_row(texts, tokenizer))
    if len(row) <= size:
        raise ConfigurationError.at(
            key,
            size,
            f": the {of} split has {len(row)} tokens, but a block needs one token more than its size. Lower it.",
        )
    return TokenBlocks(row, size, digest)


def _in_a_row(texts: Iterable[str], tokenizer: Any) -> "tuple[np.ndarray, str]":
    """The tokens of all texts, and their sha256."""
    import numpy as np

    size = vocabulary(tokenizer)
    kind: Any = np.uint8 if size <= 2**8 else np.uint16 if size <= 2**16 else np.int32
    end = [END] * isinstance(tokenizer, Bytes)
    documents = (tokens_of(text or "", tokenizer, size, f"text {number}") + end for number, text in enumerate(texts))
    row = np.concatenate([np.asarray(numbers, kind) for numbers in documents] or [np.zeros(0, kind)])
    return row, hashlib.sha256(row.tobytes()).hexdigest()


def tokens_of(text: str, tokenizer: Any, size: int, of: str) -> list[int]:
    """A text's tokens. ``of``: which text, for the error."""
    return list(text.encode()) if isinstance(tokenizer, Bytes) else encoded(text, tokenizer, size, of=of)


def _read(folder: Path, key: str) -> "tuple[np.ndarray, str] | None":
    import numpy as np

    try:
        about = json.loads((folder / f"{key}.json").read_text())
        row = np.load(folder / f"{key}.npy", mmap_mode="r")
    except (OSError, ValueError):
        return None
    return (row, about["sha256"]) if len(row) == about["tokens"] else None


def _kept(folder: Path, key: str, row: "np.ndarray", digest: str) -> "tuple[np.ndarray, str]":
    import numpy as np

    with whole_file(folder / f"{key}.npy") as file:
        np.save(file, row)
    write_whole(folder / f"{key}.json", json.dumps({"sha256": digest, "tokens": len(row)}))
    return np.load(folder / f"{key}.npy", mmap_mode="r"), digest
