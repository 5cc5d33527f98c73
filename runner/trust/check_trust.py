"""Checks a run config for anything that could run code, and whether the user trusts it.

What somebody else sent holds plain values, and nothing of Hydra's own section: that names what Hydra imports and calls
(callbacks, launcher, sweeper, logging) and where it writes.
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from manyheads.runner.config.lookup import NAMED
from manyheads.runner.config.typed_packages import NAME
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.source_file import source_file
from manyheads.runner.option.tree import OPTION, TARGET, Section, targets
from manyheads.runner.trust import trust_store
from manyheads.runner.trust.allowed_classes import is_harmless
from manyheads.runner.trust.allowed_keys import may_declare, refused_keys
from manyheads.runner.trust.trust_store import Trust

PACKAGES = ("torch", "torchvision", "manyheads")


def refuse_untrusted(config: Section | DictConfig, trust: Trust | None) -> None:
    """Raises ConfigurationError that lists what the user must trust, and how. ``trust``: None for an own config."""
    if trust is None:
        return
    if isinstance(config, DictConfig):
        config = plain(config)
    if "trust" in config:
        raise ConfigurationError(
            "trust: only the user can say what is trusted, not a config: use trust=[my_package] on the command "
            f"line, or {_shown_file()}. Remove it from the config.",
            key="trust",
        )
    if refused := untrusted(config, trust):
        raise ConfigurationError(complaint(refused, trust))


def untrusted(config: Section, trust: Trust) -> list[tuple[str, Any]]:
    """The keys whose values could run any code, or name what only the user may, with these values."""
    refused = [(key, value) for key, value in targets(config) if not _is_allowed(key, value, trust)]
    return [*refused, *refused_keys(config, trust)]


def plain(composed: DictConfig) -> dict[str, Any]:
    """A composed config as plain values, resolved as far as possible."""
    keys = [key for key in composed if key != "hydra"]
    try:
        return {str(key): _plain(composed, key, resolve=True) for key in keys}
    except OmegaConfBaseException:  # such as for a key that is not set yet; freezing checks again
        return {str(key): _plain(composed, key, resolve=False) for key in keys}


def _plain(composed: DictConfig, key: Any, *, resolve: bool) -> Any:
    """One key's value. Taking all but Hydra's section at once would copy the whole config."""
    node: Any = composed._get_node(key)
    if resolve and node._is_interpolation():  # it may stand for a whole section
        node = node._dereference_node()
    return OmegaConf.to_container(node, resolve=resolve) if OmegaConf.is_config(node) else node._value()


def complaint(refused: list[tuple[str, Any]], trust: Trust | None = None) -> str:
    """The error message; each of ``refused`` is a key with a value that names code or controls a program."""
    code = {key: value for key, value in refused if _names_code(key)}
    others = {key: value for key, value in refused if key not in code}
    what = "it names code outside the allowed classes, which could run anything"
    may = (
        "it sets what only you may: a path outside its folder, or where others may write, an address, a host, a "
        "command, or unknown arguments"
    )
    named = [
        f"{says}: {', '.join(f'{key}={shown(value)}' for key, value in values.items())}"
        for says, values in ((what, code), (may, others))
        if values
    ]
    files = [(key, value) for key, value in refused if source_file(value)]
    needed = dict.fromkeys(_to_trust(key, value) for key, value in refused if (key, value) not in files)
    names = ",".join(name for name in needed if NAME.fullmatch(name))
    ways = f" If you trust it, set trust=[{names}] on the command line, or trust: [{names}] in {_shown_file()}."
    typed = " ".join(f"{key}={shown(value)}" for key, value in files)
    return (
        f"this config was not created by you on this machine, and {'; and '.join(named)}. Look at "
        f"{'that code' if code else 'that'} first.{ways if names or not files else ''}"
        f"{f' You can name a file of your own explicitly: {typed}.' if files else ''}"
        f"{trust.how_to_own() if trust else ''}"
    )


def _is_allowed(key: str, value: Any, trust: Trust) -> bool:
    if not isinstance(value, str):
        return False
    group, _, name = key.rpartition(".")
    if (section := group.partition("."))[0] in NAMED and "." not in section[2]:
        group = section[0]  # each entry of these has its own name
    if name == OPTION:
        return may_declare(group, value, trust) or trust.is_own(key, value)
    return trust.covers(value) or trust.is_own(key, value) or is_harmless(None if "." in group else group, value)


def _names_code(key: str) -> bool:
    """Whether a key names a class or a package, not another value."""
    return key.rpartition(".")[2] in (TARGET, OPTION) or key.startswith(("hydra.", "--"))


def _to_trust(key: str, value: Any) -> str:
    """The name to trust: a complete package, or for code that is installed everywhere, only the object itself."""
    if key.rpartition(".")[2] not in (TARGET, OPTION):
        return key
    package = str(value).partition(".")[0]
    return str(value) if package in (*PACKAGES, *sys.stdlib_module_names) else package


def shown(value: Any) -> str:
    """A name or value as one line for the terminal, with control characters escaped."""
    value = str(value) if isinstance(value, Path) else value
    return value if isinstance(value, str) and value.isprintable() else json.dumps(value, default=str)


def _shown_file() -> str:
    path = trust_store.file()
    return "~/.config/manyheads.yaml" if path is None else str(path).replace(f"{Path.home()}/", "~/", 1)


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
