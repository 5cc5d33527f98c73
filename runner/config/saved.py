"""A saved run config as something that Hydra can compose again: options and keys are set over it as over conf/."""

from pathlib import Path
from typing import Any

import yaml
from hydra.core.config_store import ConfigStore

from manyheads.runner.config.lookup import CONF, SECTIONS, option_of
from manyheads.runner.option.declared import GROUPS
from manyheads.runner.run.errors import ConfigurationError
from manyheads.runner.run.old_configs import renewed
from manyheads.runner.trust.config_files import read_config_file

NAME = "saved"


def read_saved(path: Path) -> dict[str, Any] | None:
    """The config if it is a whole run's; None where there is none, or one that Hydra has yet to compose."""
    try:
        content = read_config_file(path).content
    except (OSError, ConfigurationError):  # Hydra, or a look at the whole folder, will say what is wrong
        return None
    if not isinstance(content, dict) or "defaults" in content:
        return None
    sections = [*(content.get(group) for group in GROUPS), *(content.get(name, {}) for name in SECTIONS)]
    return renewed(content) if all(isinstance(section, dict) for section in sections) else None


def offer(saved: dict[str, Any], *, chosen: set[str]) -> None:
    """Let Hydra find the config by this module's NAME, and its parts as options of that name.

    chosen: keys that are set anew. A strategy that is chosen without a launcher brings its own, not the saved one.
    Raises ConfigurationError for a part with a key that Hydra would take for a list of more files.
    """
    base = yaml.safe_load((CONF / "config.yaml").read_text())
    kept = [group for group in GROUPS if group != "launcher" or not ("parallel" in chosen and group not in chosen)]
    store = ConfigStore.instance()
    for group in kept:
        if "defaults" in saved[group]:
            raise ConfigurationError(f"{group}.defaults: a saved config cannot have a key of that name. Remove it.")
        store.store(group=group, name=NAME, node={**(option_of(group, saved[group]) or {}), **saved[group]})
    defaults: list[Any] = []
    for entry in base.pop("defaults"):
        group = next(iter(entry)) if isinstance(entry, dict) else entry
        if not group.startswith("optional "):  # what it laid over the groups is in the saved config already
            defaults.append({group: NAME} if group in kept else entry)
    rest = {key: value for key, value in saved.items() if key not in GROUPS}
    sections = {name: {**base[name], **saved.get(name, {})} for name in SECTIONS if name != "loss"}
    store.store(name=NAME, node={"defaults": defaults, **base, **rest, **sections, "hydra": base["hydra"]})
