"""Turns the config that Hydra composed into a plain run config: looks up its options, checks its keys and values."""

import pickle
import re
from functools import partial
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict, read_write
from omegaconf.errors import OmegaConfBaseException

from manyheads.runner.config.code_files import absolute, check_files
from manyheads.runner.config.lookup import ABOUT, CONF, NAMED, OWN, SECTIONS, Folders, read
from manyheads.runner.config.run_rules import EPOCHS, RULES, rules_of
from manyheads.runner.config.section_rules import (
    check_entry,
    check_named,
    check_names,
    check_section,
    check_values,
    checked_option,
    completed,
    refuse_secrets,
)
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.declared import ENTRIES, GROUPS
from manyheads.runner.option.tree import Section, leaves, targets, with_targets
from manyheads.runner.run.seal import project_of

_VOLATILE = re.compile(r"\$\{(now|hydra)[:.]")


def check(composed: DictConfig, folders: Folders = OWN) -> Section:
    """The run config as plain values. Raises ConfigurationError for unknown keys, wrong types and ranges.

    composed: with or without Hydra's own part; folders: where options are looked up. Imports what the options'
    ``_option_`` name.
    """
    config = _resolved(composed)
    projects = [project_of(folder) for folder in folders if folder != CONF]
    config = with_targets(config, partial(absolute, projects=projects))
    check_files([*targets(config)])
    base = read(CONF / "config.yaml")
    check_names("", config.items(), ["seed", *SECTIONS, *GROUPS, *NAMED, *ABOUT])
    check_values("", {key: config.setdefault(key, base[key]) for key in ("seed", *ABOUT)}, base, RULES)
    for name in SECTIONS:
        section = config[name] = completed(name, config.get(name, {}), base[name])
        if name == "trainer":
            section = config[name] = {**section, "epochs": _settled_epochs(section)}
        check_section(name, section, base[name], rules_of(name), open_keys=name == "loss")
    for group in GROUPS:
        config[group] = checked_option(group, config.get(group), folders)
    for name in NAMED:
        config[name] = config.get(name) or {}
        check_named(name, config[name])
    for group in ENTRIES:
        for name, entry in config[group].items():
            check_entry(group, name, entry, folders)
    refuse_secrets(leaves(config))
    return config


def is_run_config(composed: DictConfig) -> bool:
    """Whether it is a config of this project, whose sweep launcher may run other Hydra apps too."""
    return all(group in composed for group in GROUPS)


def without_hydra(composed: DictConfig) -> DictConfig:
    """The config that Hydra passes to the task function, as a copy."""
    task: DictConfig = pickle.loads(pickle.dumps(composed))  # OmegaConf's own copy takes several times as long
    with read_write(task), open_dict(task):
        task.pop("hydra", None)
    return task


def _resolved(composed: DictConfig) -> Section:
    """The content as plain values. Raises ConfigurationError for values that are missing or cannot be resolved."""
    config: dict[str, Any] = {}
    for key in composed:
        node: Any = composed._get_node(key)
        if key != "hydra":
            config[str(key)] = OmegaConf.to_container(node) if OmegaConf.is_config(node) else node._value()
    texts = {key: value for key, value in leaves(config) if isinstance(value, str)}
    for key, text in texts.items():
        if _VOLATILE.search(text):
            raise ConfigurationError.at(
                key,
                text,
                f": a run config may not depend on ${{now:}} or ${{hydra:}}, since it would be different "
                f"when the run is repeated. Allowed: plain values and references to other keys. Set {key} to one.",
            )
    if not any("${" in text or text == "???" for text in texts.values()):
        return config
    try:
        task = without_hydra(composed)
        trainer = config.get("trainer")
        if isinstance(trainer, dict) and _settled_epochs(trainer) != trainer.get("epochs"):
            with read_write(task):
                task.trainer.epochs = _settled_epochs(trainer)  # before other keys refer to it
        return OmegaConf.to_container(task, resolve=True, throw_on_missing=True)  # type: ignore[return-value]
    except OmegaConfBaseException as error:
        raise ConfigurationError(_missing_or(error)) from None


def _settled_epochs(trainer: Any) -> Any:
    """The number of epochs, where a default such as "90 or max_steps" is null if the number of updates is set."""
    epochs = trainer.get("epochs")
    if (default := re.fullmatch(EPOCHS, str(epochs))) is None:
        return epochs
    return int(default[1]) if trainer.get("max_steps") is None else None


def _missing_or(error: OmegaConfBaseException) -> str:
    key = getattr(error, "full_key", None)
    if "Missing mandatory value" in str(error):
        return f"{key} is not set, and has no default. Set it: {key}=<value>."
    return f"{key}: {str(error).splitlines()[0]}. Set {key} to a plain value, or to a reference to another key."
