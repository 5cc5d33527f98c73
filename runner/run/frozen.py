"""The YAML files of a thousand runs, read quickly: runs share most sections, so that each text is parsed once."""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any

from manyheads.runner.errors import ConfigurationError, printable
from manyheads.runner.run import yaml_text
from manyheads.runner.run.data_files import read_text
from manyheads.runner.run.frozen_config import without_format
from manyheads.runner.run.yaml_text import Flat, flatten

MOST_BYTES = 2**20
_SECTION = re.compile(r"^(?=[^\s-])", re.MULTILINE)  # a top-level key; its list's items may start in the same column
_ITEM = re.compile(r"^(?=- )", re.MULTILINE)
_HEAD = re.compile(r"\w+:\n")
_KEY = re.compile(r"^(?=  [^\s-])", re.MULTILINE)  # a key one level below
_PLAIN = re.compile(r"- ([A-Za-z_][\w./@]*=[\w./-]*)\n", re.ASCII)  # an item that YAML reads as this very text


class FlatConfig(Mapping[str, Any]):
    """A run config by dotted key, lists as values. Runs share equal ``sections``, by top-level key; none may change."""

    def __init__(self, sections: Mapping[str, Flat] = MappingProxyType({})):
        self.sections = sections

    def __getitem__(self, key: str) -> Any:
        return self.sections[key.partition(".")[0]][key]

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(self.sections.values())

    def __len__(self) -> int:
        return sum(map(len, self.sections.values()))


def read_frozen(path: Path, *, only: tuple[str, ...] = ()) -> FlatConfig:
    """The run config in a file, as ``frozen`` returns it; empty if there is no readable config."""
    return frozen(_text(path), only=only)


def frozen(text: str, *, only: tuple[str, ...] = ()) -> FlatConfig:
    """A run config; empty if it is not YAML or has more than MOST_VALUES.

    ``only``: the top-level keys that are needed; the others need not be parsed.
    """
    if text.count("\n") > yaml_text.MOST_VALUES:
        return FlatConfig()
    sections: dict[str, Flat] = {}
    for part in _parts(text, _SECTION, dict, only):
        for name, section in part.items():
            sections[name] = sections[name] | section if name in sections else section
    config = FlatConfig(without_format(sections))
    return config if len(config) <= yaml_text.MOST_VALUES else FlatConfig()


def read_typed(path: Path) -> list[str]:
    """The overrides that were typed, from Hydra's overrides.yaml; empty if there is no readable file."""
    return [printable(override) for items in _parts(_text(path), _ITEM, list) for override in items]


def _text(path: Path) -> str:
    try:
        return read_text(path, most=MOST_BYTES)
    except (OSError, ConfigurationError):
        return ""


def _parts(text: str, start: re.Pattern[str], kind: type, only: tuple[str, ...] = ()) -> Iterator[Any]:
    """The contents of the parts of a text; that of the whole text if the parts are not YAML by themselves."""
    try:
        try:
            contents = [_read(part) for part in start.split(text) if part.strip() and part.startswith(only or "")]
        except yaml_text.Error:  # such as of an alias for what stands in another part
            contents = [_divided(_parsed(text))]
    except Exception:  # YAML's constructors raise anything
        return
    yield from (part for part in contents if isinstance(part, kind))


@lru_cache(maxsize=4096)
def _read(text: str) -> Any:
    """A part by section. If each key of a section is valid YAML by itself, the keys are parsed one by one, once."""
    if match := _PLAIN.fullmatch(text):
        return [match[1]]
    head, *keys = _KEY.split(text)
    if keys and _HEAD.fullmatch(head):
        with suppress(yaml_text.Error):
            [name], *sections = [_parsed(part) for part in (head, *keys)]
            if all(isinstance(section, dict) for section in sections):
                return _divided({f"{name}.{key}": value for section in sections for key, value in section.items()})
    return _divided(_parsed(text))


def _divided(content: Any) -> Any:
    """A config with dotted keys, by section; any other content unchanged."""
    if not isinstance(content, dict):
        return content
    sections: dict[str, Flat] = {}
    for key, value in content.items():
        sections.setdefault(key.partition(".")[0], {})[key] = value
    return sections


@lru_cache(maxsize=4096)
def _parsed(text: str) -> Any:
    """The parsed text, which all callers share and none may change."""
    content = yaml_text.parse(text)
    return flatten(content) if isinstance(content, dict) else content
