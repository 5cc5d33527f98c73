"""Reads the numbers that a command prints or writes."""

import json
import math
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.data_files import parse_json, read_text
from manyheads.runner.wording import nearest

MOST_BYTES = 2**24  # of a console's end, and of a result file
CODES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")  # colours and cursor movements of a terminal
VALUE = r"([-+]?(?:nan|inf(?:inity)?|\.?\d[\d.]*(?:e[-+]?\d+)?))(?![\w.])"
NAMED = re.compile(r"(?<![\w./-])([A-Za-z][\w./-]*)[\"']?(?:\s*[:=]\s*|\s+)(?=[-+.\d])")  # names followed by numbers


def text_of(console: Path) -> str:
    """What a command printed, without colours; of a long output, the last MOST_BYTES."""
    with open(console, "rb") as file:
        file.seek(max(0, console.stat().st_size - MOST_BYTES))
        return CODES.sub("", file.read().decode(errors="replace"))


def printed(text: str, names: Iterable[str]) -> dict[str, float]:
    """The numbers with these names, each from the last line that has it; names without a number are missing.

    A line has a number as ``METRIC name=value``, ``name: value``, ``name=value``, ``name value`` or as a key of a JSON
    object. A space may stand for an underscore of the name: ``val loss 0.5``. After another word, as in ``val loss``, a
    ``loss`` only counts if the line has no other, and as ``val loss: 0.5``.
    """
    lines = [line for line in re.split(r"[\r\n]+", text) if line.strip()]
    begin, separator = r"(?:(?<=[a-z])( +)|(?<![\w./-]))", r"(?:[\"']?\s*([:=])\s*|\s+)"
    numbers = {}
    for name in names:
        words = "[_ ]".join(map(re.escape, name.split("_")))
        pattern = re.compile(begin + words + separator + VALUE, re.IGNORECASE)
        found = (_in_line(line, name, pattern) for line in reversed(lines))
        numbers[name] = next((value for value in found if value is not None), None)
    return {name: value for name, value in numbers.items() if value is not None}


def _in_line(line: str, name: str, pattern: re.Pattern[str]) -> float | None:
    if line.lstrip().startswith("{"):
        with suppress(ValueError, RecursionError):
            return _at(json.loads(line), name)
    matches = pattern.findall(line.replace("METRIC ", ""))
    values = [value for word, _, value in matches if not word][-1:] or [value for _, sign, value in matches if sign]
    try:
        return float(values[0].rstrip(".")) if len(values) == 1 else None
    except ValueError:  # such as a version, 1.2.3
        return None


def written(path: Path, key: str, names: Iterable[str]) -> dict[str, float]:
    """The numbers in a JSON file: one at ``key``, such as val.acc; several by their names below it.

    Raises ConfigurationError if the file cannot be read.
    """
    try:
        content = parse_json(read_text(path, most=MOST_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"--result: {path.name} cannot be read: {error}", key="--result") from None
    wanted = [*names]
    keys = {wanted[0]: key} if len(wanted) == 1 and key else {name: f"{key}.{name}".strip(".") for name in wanted}
    return {name: value for name, at in keys.items() if (value := _at(content, at)) is not None}


def _at(content: Any, key: str) -> float | None:
    """The number at a key, also a dotted one; None if there is none."""
    if isinstance(content, Mapping) and key in content:
        value = content[key]
        return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
    first, _, rest = key.partition(".")
    return _at(content[first], rest) if rest and isinstance(content, Mapping) and first in content else None


def finite(numbers: Mapping[str, float], names: Iterable[str], *, where: str, text: str, end: str) -> dict[str, float]:
    """The numbers, each of which must exist and be finite; otherwise raises ConfigurationError.

    ``where``: in what they were looked for; ``text``: its content; ``end``: how that ends.
    """
    for name in names:
        if name not in numbers:
            hint = nearest(name, {*NAMED.findall(text)} - {name})
            hint = hint or f" Print a line such as '{name}: 0.5', or name a file with --result."
            raise ConfigurationError(f"{where} has no number {name}.{hint} It ends with: {end}", key="--on", value=name)
        if not math.isfinite(numbers[name]):
            raise ConfigurationError(f"{name} is {numbers[name]}", key="--on", value=name)
    return {name: numbers[name] for name in names}


def last_words(text: str) -> str:
    """The last lines of what a command printed, in one."""
    lines = [line.strip() for line in text[-2000:].split("\n") if line.strip()]
    return " | ".join(lines[-3:])[-300:] or "nothing"
