"""The content of a config that somebody else sent: plain values, and nothing of Hydra's own section.

That section names what Hydra imports and calls (callbacks, launcher, sweeper, logging) and where it writes.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.trust.check_trust import shown

RESOLVER = re.compile(r"\$\{.*:", re.DOTALL)  # a resolver's name may be built from other keys


def refuse_content(path: Path, content: Any) -> None:
    """Raises ConfigurationError if a file has Hydra's section among its keys, or a value that is not plain."""
    if content is not None and not isinstance(content, dict):
        raise ConfigurationError(f"{shown(path)} is not a config: it is not a mapping.")
    for key in content or {}:
        if leads_to_hydra(key):
            raise ConfigurationError(
                f"{shown(path)}: {shown(key)}: a config that you did not create on this machine cannot change Hydra's "
                "own section, which can run code and write files anywhere. Remove it from the file; set what you need "
                "on the command line, as hydra.<key>=<value>."
            )
    for value in _values(content):
        if isinstance(value, int) and abs(value) >= 2**64:
            raise ConfigurationError(f"{shown(path)} holds a number of more than 64 bits. Remove it.")
        if isinstance(value, str) and not value.replace("\n", "").replace("\t", "").isprintable():
            raise ConfigurationError(f"{shown(path)}: {shown(value)} has control characters. Remove them.")
        if isinstance(value, str) and RESOLVER.search(value):
            raise ConfigurationError(
                f"{shown(path)}: {shown(value)}: a config that you did not create on this machine cannot ask for "
                "environment variables, or call any other resolver. Allowed: references to other keys, as ${seed}. "
                "Type the value on the command line."
            )


def resolvers(content: Any) -> list[str]:
    """The texts that call resolvers, such as of environment variables."""
    return [value for value in _values(content) if isinstance(value, str) and RESOLVER.search(value)]


def _values(content: Any) -> Iterator[Any]:
    """All keys and values, at any depth."""
    if isinstance(content, dict):
        for key, item in content.items():
            yield key
            yield from _values(item)
    elif isinstance(content, (list, tuple, set)):
        for item in content:
            yield from _values(item)
    else:
        yield content


def leads_to_hydra(name: Any) -> bool:
    """Whether a key, package or path has a part named hydra, in any case, since some file systems ignore case."""
    return "hydra" in re.split(r"[^\w-]+", str(name).lower())
