"""The meanings of keys, read from the comments in conf/, the only place for them."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from manyheads.runner.config.lookup import package_of

FOR_PROGRAMS = ("@package", "yaml-language-server:")
_LINE = re.compile(r"(?P<indent> *)(?P<key>[\w-]+):(?: +(?P<value>[^#]*?))?(?: *# (?P<meaning>.*))?$")


class KeyMeaning(NamedTuple):
    """A key as a file shows it. ``key``: dotted, from the root of the config; ``value``: the text of its default."""

    key: str
    value: str
    meaning: str


def description(path: Path) -> str:
    """The comment at the head of an option's file."""
    lines = path.read_text().splitlines()
    head = [line for line in lines if line.startswith("# ") and not any(phrase in line for phrase in FOR_PROGRAMS)]
    return " ".join(line[2:] for line in head)


def described(path: Path, group: str = "") -> Iterator[KeyMeaning]:
    """The keys of a file in its order, including those without a comment. ``group``: the option's group."""
    text = path.read_text()
    package = package_of(text)
    prefix = {"_global_": []}.get(package, package.split(".")) if package else [group] if group else []
    above: list[tuple[int, str]] = []
    for line in text.splitlines():
        if not (match := _LINE.fullmatch(line)):
            continue
        indent = len(match["indent"])
        above = [(depth, key) for depth, key in above if depth < indent] + [(indent, match["key"])]
        keys = [*prefix, *(key for _, key in above)]
        if keys[0] not in ("defaults", "hydra"):
            yield KeyMeaning(".".join(keys), (match["value"] or "").strip(), match["meaning"] or "")
