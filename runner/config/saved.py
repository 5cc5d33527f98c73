"""Makes a saved run config composable by Hydra: options and keys can be set over it as over conf/."""

import copy
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from hydra import compose
from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf

from manyheads.runner.config.command_line import CommandLine, searching
from manyheads.runner.config.hydra_version import REPLACE, composing_from_conf
from manyheads.runner.config.lookup import CONF, NAMED, SECTIONS, Folders, option_of, read
from manyheads.runner.config.own_folders import with_own_folders
from manyheads.runner.errors import ConfigurationError, printable
from manyheads.runner.option.declared import GROUPS
from manyheads.runner.option.tree import Section
from manyheads.runner.run import seal, yaml_text
from manyheads.runner.run.data_files import read_bytes
from manyheads.runner.run.frozen_config import without_format
from manyheads.runner.run.run_folder import RunFolder

NAME = "saved"


class Saved(NamedTuple):
    """A complete run's config, read once. ``is_own``: the user recorded or trusts it."""

    config: Section
    is_own: bool


def read_saved(path: Path) -> Saved | None:
    """The config at ``path`` if it is a complete run's; None if it is missing, or if Hydra has yet to compose it.

    Raises ConfigurationError for somebody else's config that cannot be read.
    """
    folder = path.parent.resolve()
    try:
        content = read_bytes(folder / path.name)
        config = parse_config(content, path)
    except OSError:  # Hydra reports it
        return None
    except ConfigurationError:
        if seal.is_own_place(folder):  # which may hold anything
            return None
        raise
    if not isinstance(config, dict) or "defaults" in config:
        return None
    saved = without_format(config)
    if missing_section(saved) is not None:
        return None
    run, name = (folder.parent, RunFolder.COMPOSED) if folder.name == ".hydra" else (folder, path.name)
    return Saved(saved, seal.is_own(run, {name: content}))


def missing_section(config: Section) -> str | None:
    """The first section that a complete run's config lacks, or has with another type; None if it is complete."""
    wanted = (*GROUPS, *(name for name in SECTIONS if name in config))
    return next((name for name in wanted if not isinstance(config.get(name), dict)), None)


def register_options(saved: Section, *, chosen: set[str]) -> None:
    """Register the config with Hydra under this module's NAME, and its parts as options of that name.

    chosen: keys that are overridden. A strategy chosen without a launcher brings its own, not the saved one. Raises
    ConfigurationError for a key ``defaults``, of the config or of a part, which Hydra would take for a list of files.
    """
    named = {"defaults": saved, **{f"{group}.defaults": saved[group] for group in GROUPS}}
    for key in (key for key, section in named.items() if "defaults" in section):
        message = f"{key}: a saved config cannot have a key of that name. Remove it."
        raise ConfigurationError(message, key=key)
    base = copy.deepcopy(read(CONF / "config.yaml"))
    kept = [group for group in GROUPS if group != "launcher" or not ("parallel" in chosen and group not in chosen)]
    store = ConfigStore.instance()
    for group in kept:
        store.store(group=group, name=NAME, node={**(option_of(group, saved[group]) or {}), **saved[group]}, **REPLACE)
    defaults: list[Any] = []
    for entry in base.pop("defaults"):
        group = next(iter(entry)) if isinstance(entry, dict) else entry
        # The saved config already contains what these set over the groups, and the named entries.
        if not group.startswith("optional ") and group not in NAMED:
            defaults.append({group: NAME} if group in kept else entry)
    rest = {key: value for key, value in saved.items() if key not in GROUPS}
    sections = {name: {**base[name], **saved.get(name, {})} for name in SECTIONS if name != "loss"}
    epochs = sections["trainer"]["epochs"]
    if "trainer.max_steps" in chosen and isinstance(epochs, int):  # another length is asked for
        sections["trainer"]["epochs"] = f"{epochs} or max_steps"
    store.store(name=NAME, node={"defaults": defaults, **base, **rest, **sections, "hydra": base["hydra"]}, **REPLACE)


def composed(config: Section, overrides: Iterable[str], *, chosen: set[str]) -> tuple[DictConfig, Folders]:
    """Compose a saved config with overrides; return it with the folders in which options were looked up.

    chosen: as for ``register_options``. Raises what Hydra raises, and ConfigurationError as ``register_options`` does.
    """
    register_options(config, chosen=chosen)
    folders = with_own_folders(CommandLine(())).folders
    path = [searching(folders[1:])] if folders[1:] else []
    with composing_from_conf():
        return compose(NAME, [*overrides, *path]), folders


BYTES = 50_000  # limit of a file; a run config has 4,000


def parse_config(content: bytes, path: Path) -> Any:
    """Parse a config's content as Hydra would. Raises ConfigurationError if it is too large or not YAML."""
    try:
        if len(content) > BYTES:
            raise ValueError(f"it has more than {BYTES} bytes")
        text = content.decode()
        yaml_text.parse(text)  # within its limits
        return OmegaConf.to_container(OmegaConf.create(text))  # what Hydra reads: parsers differ
    except Exception as error:  # YAML's constructors raise anything, RecursionError included
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ConfigurationError(f"{printable(path)} cannot be read: {reason}.") from None
