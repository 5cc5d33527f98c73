"""A saved run config as something that Hydra can compose again: options and keys are set over it as over conf/."""

from pathlib import Path
from typing import Any

import yaml
from hydra._internal.utils import get_args_parser
from hydra.core.config_store import ConfigStore

from manyheads.runner.config.schema import CONF, GROUPS, SECTIONS, option_of

NAME = "saved"
_sources: list[str] = []


def source() -> str | None:
    """The saved config that this process composes its runs from, if any."""
    return _sources[-1] if _sources else None


def with_saved_config(arguments: list[str], *, home: Path) -> list[str]:
    """The command line, in which a --config-path that leads to a saved run config is one that can be composed.

    home: the folder that Hydra takes a relative --config-path from.
    """
    flags = get_args_parser().parse_known_args(arguments[1:])[0]
    if flags.config_path is None:
        return arguments
    path = home / flags.config_path / f"{(flags.config_name or 'config').removesuffix('.yaml')}.yaml"
    saved = _read(path)
    if saved is None:
        return arguments
    _sources.append(str(path))
    offer(saved, chosen={override.partition("=")[0] for override in flags.overrides})
    return [*arguments, "--config-path", str(CONF), "--config-name", NAME]  # of two the last one counts


def offer(saved: dict[str, Any], *, chosen: set[str]) -> None:
    """Let Hydra find the config by this module's NAME, and its parts as options of that name.

    chosen: keys that are set anew. A strategy that is chosen without a launcher brings its own, not the saved one.
    """
    base = yaml.safe_load((CONF / "config.yaml").read_text())
    kept = [group for group in GROUPS if group != "launcher" or not ("parallel" in chosen and group not in chosen)]
    store = ConfigStore.instance()
    for group in kept:
        store.store(group=group, name=NAME, node={**(option_of(group, saved[group]) or {}), **saved[group]})
    defaults: list[Any] = []
    for entry in base.pop("defaults"):
        group = next(iter(entry)) if isinstance(entry, dict) else entry
        if not group.startswith("optional "):  # what it laid over the groups is in the saved config already
            defaults.append({group: NAME} if group in kept else entry)
    rest = {key: value for key, value in saved.items() if key not in GROUPS}
    sections = {name: {**base[name], **saved.get(name, {})} for name in SECTIONS if name != "loss"}
    store.store(name=NAME, node={"defaults": defaults, **base, **rest, **sections, "hydra": base["hydra"]})


def _read(path: Path) -> dict[str, Any] | None:
    """The config if it is a whole run's; None where there is none, or one that Hydra has yet to compose."""
    try:
        content = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError):  # Hydra will say what is wrong
        return None
    is_saved = isinstance(content, dict) and "defaults" not in content
    return content if is_saved and all(isinstance(content.get(group), dict) for group in GROUPS) else None
