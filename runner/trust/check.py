"""The check of a run config: what in it could run code, and whether the user trusts that."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from manyheads.runner.config.schema import option_of
from manyheads.runner.run.errors import ConfigurationError
from manyheads.runner.trust import packages
from manyheads.runner.trust.allowed_classes import is_harmless
from manyheads.runner.trust.packages import Trust

TARGET = "_target_"
# Free text that becomes part of a launcher's command line, names machines to log in to, or a file to write; what
# fetches files from elsewhere.
STEERING = (
    "launcher.arguments",
    "launcher.hosts",
    "launcher.hostfile",
    "launcher.network_interface",
    "parallel.timeline",
    "data.download",
    "model.pretrained",
)
PACKAGES = ("torch", "torchvision", "manyheads")


def refuse_untrusted(config: dict[str, Any], trust: Trust | None) -> None:
    """Raises ConfigurationError that lists what the user does not trust yet, and how he can. None: it is his own."""
    if trust is None:
        return
    if "trust" in config:
        raise ConfigurationError(
            "trust: no config can say what is trusted, only the user: trust=[my_package] on the command line, "
            f"{packages.VARIABLE}, or {_shown_file()}. Remove it from the config."
        )
    if found := untrusted(config, trust):
        raise ConfigurationError(complaint(found, trust))


def untrusted(config: dict[str, Any], trust: Trust) -> list[tuple[str, Any]]:
    """Keys with their values that could run anything."""
    found = [(key, value) for key, value in targets(config) if not _is_allowed(key, value, trust)]
    for key in STEERING:
        group, _, name = key.partition(".")
        section = config.get(group)
        value = section.get(name) if isinstance(section, dict) else None
        said = value in (None, False) or trust.is_own(key, value) or key in trust.packages
        if not said and (value is True or value != _own_value(group, name, section)):
            found.append((key, value))
    return found


def targets(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Every ``_target_`` that is set, with its dotted key, wherever it is."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, item in items:
        inner = f"{key}.{name}".lstrip(".")
        if name == TARGET and item is not None and item != "???":
            yield inner, item
        yield from targets(item, inner)


def own_values(config: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """All that would need trust in a config of the user's own."""
    yield from targets(config)
    for key in STEERING:
        group, _, name = key.partition(".")
        if isinstance(config.get(group), dict) and config[group].get(name) is not None:
            yield key, config[group][name]


def plain(composed: DictConfig) -> dict[str, Any]:
    """A composed config, resolved as far as it can be already."""
    task = {key: value for key, value in _container(composed, resolve=False).items() if key != "hydra"}
    try:
        return _container(OmegaConf.create(task), resolve=True)
    except OmegaConfBaseException:  # such as for a key that is still to be set; freezing it will look again
        return task


def complaint(found: list[tuple[str, Any]], trust: Trust) -> str:
    """The error's text; each of ``found`` is a key, with a value that names code or steers a program."""
    listed = ", ".join(f"{key}={shown(value)}" for key, value in found)
    needed = dict.fromkeys(_to_trust(key, value) for key, value in found)
    names = ",".join(name for name in needed if packages.NAME.fullmatch(name))
    return (
        "this config was not created by you on this machine, and it names code outside the allowed classes, which "
        f"could run anything: {listed}. Look at that code first. If you trust it, say so: trust=[{names}] on the "
        f"command line, {packages.VARIABLE}={names} in the environment, or trust: [{names}] in {_shown_file()}."
        f"{trust.how_to_own()}"
    )


def _is_allowed(key: str, value: Any, trust: Trust) -> bool:
    if not isinstance(value, str):
        return False
    group = key.removesuffix(f".{TARGET}")
    return trust.covers(value) or trust.is_own(key, value) or is_harmless(None if "." in group else group, value)


def _own_value(group: str, name: str, section: Any) -> Any:
    """What the project's own option says."""
    try:
        return (option_of(group, section) or {}).get(name)
    except ConfigurationError:
        return None


def _to_trust(key: str, value: Any) -> str:
    """A package of somebody's as a whole; of what is installed everywhere that one thing only."""
    if key in STEERING:
        return key
    package = str(value).partition(".")[0]
    return str(value) if package in (*PACKAGES, *sys.stdlib_module_names) else package


def shown(value: Any) -> str:
    """A name or value for the terminal in one line, with its control characters written out."""
    value = str(value) if isinstance(value, Path) else value
    return value if isinstance(value, str) and value.isprintable() else json.dumps(value, default=str)


def _shown_file() -> str:
    path = packages.file()
    return "~/.config/manyheads.yaml" if path is None else str(path).replace(f"{Path.home()}/", "~/", 1)


def _container(config: Any, *, resolve: bool) -> dict[str, Any]:
    return OmegaConf.to_container(config, resolve=resolve)  # type: ignore[return-value]
