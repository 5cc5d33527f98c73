"""Selects shards by patterns of their names: * and ?, and webdataset's braces, {train,extra}-{000000..000146}.tar."""

import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.wording import nearest

MOST = 1_000_000  # names that braces may stand for
BRACES = re.compile(r"\{([^{}]*)\}")
RANGE = re.compile(r"(\d+)\.\.(\d+)")


def chosen(split: str, pattern: str, names: Sequence[str], *, may_lack: bool = False) -> list[int]:
    """Indices of the ``names`` that a split's pattern selects, in its order; "auto": the split's name in the name.

    ``may_lack``: the pattern may select none. Raises ConfigurationError for a name without * or ? that is missing, such
    as a shard that somebody forgot to copy.
    """
    key, places = f"data.{split}_shards", {name: number for number, name in enumerate(names)}
    numbers: dict[int, None] = {}
    patterns = [f"{split}/*", f"*{split}*"] if pattern == "auto" else _expanded(pattern, key)
    for shard in patterns:
        if any(letter in shard for letter in "*?["):
            numbers.update((number, None) for name, number in places.items() if fnmatchcase(name, shard))
        elif shard in places:
            numbers[places[shard]] = None
        elif not may_lack:
            rest = f": the shard {shard} is missing.{nearest(shard, names)} Copy it to data.root."
            raise ConfigurationError.at(key, pattern, rest)
    if not numbers and not may_lack:
        raise ConfigurationError.at(
            key,
            pattern,
            f" matches none of {len(names)} shards, such as {names[0]}. Set it to a pattern of their names.",
        )
    return [*numbers]


def _expanded(pattern: str, key: str) -> Iterator[str]:
    """The patterns without braces that a pattern with braces stands for."""
    waiting, count = [pattern], 0
    while waiting:
        text = waiting.pop(0)
        braces = BRACES.search(text)
        if braces is None:
            yield text
            continue
        choices = _choices(braces[1])
        count += len(choices)
        if count > MOST:
            raise ConfigurationError.at(key, pattern, f" stands for more than {MOST:,} names. Use * instead.")
        waiting[:0] = [f"{text[: braces.start()]}{choice}{text[braces.end() :]}" for choice in choices]


def _choices(text: str) -> Sequence[str]:
    if numbers := RANGE.fullmatch(text):
        first, last = numbers.groups()
        return [f"{number:0{len(first)}}" for number in range(int(first), min(int(last), int(first) + MOST) + 1)]
    return text.split(",")
