"""Turns the config that Hydra composed into a plain run config: looks up its options, checks its keys and values."""

import pickle
import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict, read_write
from omegaconf.errors import OmegaConfBaseException

from manyheads.runner.config.code_files import KIND, absolute, check_files
from manyheads.runner.config.lookup import (
    ABOUT,
    CONF,
    NAMED,
    OWN,
    SECTIONS,
    Folders,
    entry_option,
    option_of,
    options,
    owners,
    read,
    read_option,
    refuse_hidden,
    shown,
    unknown_key,
)
from manyheads.runner.config.run_rules import EPOCHS, RULES, rules_of
from manyheads.runner.config.secret_values import refuse_secrets
from manyheads.runner.errors import ConfigurationError, UnknownName, not_allowed
from manyheads.runner.option.declared import ENTRIES, GROUPS, declared_class
from manyheads.runner.option.locate import OPTION, Section, leaves, targets, with_targets
from manyheads.runner.option.rules import Rule, rule_for
from manyheads.runner.option.source_file import source_file
from manyheads.runner.run import yaml_text
from manyheads.runner.run.seal import project_of
from manyheads.runner.wording import nearest

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
    _check_names("", config, ["seed", *SECTIONS, *GROUPS, *NAMED, *ABOUT])
    _check_values("", {key: config.setdefault(key, base[key]) for key in ("seed", *ABOUT)}, base, RULES)
    for name in SECTIONS:
        section = config[name] = _completed(name, config.get(name, {}), base[name])
        if name == "trainer":
            section = config[name] = {**section, "epochs": _settled_epochs(section)}
        _check_section(name, section, base[name], rules_of(name), open_keys=name == "loss")
    for group in GROUPS:
        option = option_of(group, config.get(group), folders)
        if option is not None:
            refuse_hidden(group, config[group], folders)
        default = _without_class(option or {}) | _own_class(group, config[group])
        section = config[group] = _completed(group, config[group], default)
        _check_values(group, {key: section[key] for key in ("_target_", OPTION) if key in section}, {}, {})
        declares = declared_class(group, section)
        if declares.has_own_class:
            _check_own_name(group, section, option, folders)
        if option is None:
            _refuse_keys_of_another(group, section, folders)
        _check_section(group, section, option or {}, declares.all_rules(), folders, open_keys=option is None)
    for name in NAMED:
        config[name] = config.get(name) or {}
        _check_named(name, config[name])
    for group in ENTRIES:
        for name, entry in config[group].items():
            check_entry(group, name, entry, folders)
    refuse_secrets(leaves(config))
    return config


def _without_class(option: Section) -> dict[str, Any]:
    """An option's content without the class that declares it, which would be imported from any folder."""
    return {key: value for key, value in option.items() if key != OPTION}


def _own_class(group: str, section: Section) -> dict[str, Any]:
    """The declaration of the project's own option of that class, for configs that predate the key."""
    option = option_of(group, section) or {}
    return {OPTION: option[OPTION]} if OPTION in option else {}


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


def _completed(name: str, section: Any, default: Section) -> Section:
    """The section completed with the defaults of missing keys."""
    if not isinstance(section, dict):
        raise ConfigurationError(
            f"{name}={shown(section)}: allowed are keys below {name}: {', '.join(default)}.",
            key=name,
            value=shown(section),
        )
    for key, value in default.items():
        if key not in section and value == "???":
            message = f"{name}.{key} is not set, and has no default. Set it: {name}.{key}=<value>."
            raise ConfigurationError(message, key=f"{name}.{key}")
    return {**section, **{key: value for key, value in default.items() if key not in section}}


def _check_section(
    name: str,
    section: Section,
    default: Section,
    rules: Mapping[str, Rule],
    folders: Folders = OWN,
    *,
    open_keys: bool,
) -> None:
    if not open_keys and default.get("_target_") != "???":
        _check_names(name, section, list(default), folders)
    _check_values(name, section, default, rules)


def _check_named(section: str, entries: Any) -> None:
    """Raises ConfigurationError unless each entry has a class, and a name that can be a column or a key."""
    if not isinstance(entries, dict):
        raise ConfigurationError(
            f"{section}={shown(entries)}: allowed are names below {section}, each a mapping.",
            key=section,
            value=shown(entries),
        )
    for name, entry in entries.items():
        key = f"{section}.{name}"
        if not isinstance(name, str) or not name.isidentifier():
            raise ConfigurationError(
                f"{key}: {name} is not a valid name. Allowed: letters, digits and underscores.", key=key
            )
        if not isinstance(entry, dict) or entry.get("_target_") is None:
            raise ConfigurationError(
                f"{key}={shown(entry)} names no class. Set +{key}._target_=<class>, or leave it out with ~{key}.",
                key=key,
                value=shown(entry),
            )
        _check_values(key, entry, {}, {})


def check_entry(group: str, name: str, entry: dict[str, Any], folders: Folders = OWN) -> None:
    """Check an entry and complete it with defaults. Raises ConfigurationError.

    If an option has an entry of the same class, the entry may have that option's keys; otherwise any keys.
    """
    option = entry_option(group, entry, folders) or {}
    base = entry_option(group, entry) or {}
    entry |= _completed(name, entry, _without_class(option) | {k: base[k] for k in (OPTION,) if k in base})
    declares = declared_class(group, entry)
    _check_section(f"{group}.{name}", entry, option, declares.all_rules(), folders, open_keys=not option)


def _check_own_name(group: str, section: Section, option: Section | None, folders: Folders) -> None:
    """Raises ConfigurationError if a section's name does not match its class, since reports use the name."""
    if option and section["name"] != option["name"]:
        raise ConfigurationError.at(
            f"{group}.name",
            str(section["name"]),
            f" does not match {group}._target_={section['_target_']}. Choose "
            f"{group}=<{'|'.join(options(group, folders))}> as a whole.",
        )


def _refuse_keys_of_another(group: str, section: Mapping[str, Any], folders: Folders) -> None:
    """Raises ConfigurationError if a file's class is set over an option, whose keys the class would get too."""
    names, name = options(group, folders), section["name"]
    if KIND not in names or name not in names or source_file(section["_target_"]) is None:
        return
    custom, taken = read_option(group, KIND, folders), read_option(group, name, folders)
    if rest := [key for key in taken if key in section and key not in (OPTION, *custom)]:
        raise ConfigurationError.at(
            f"{group}._target_",
            str(section["_target_"]),
            f" is set over {group}={name}, whose keys it would be given too: "
            f"{', '.join(rest)}. Set {group}={KIND} as well; in an experiment, defaults: [override /{group}: {KIND}].",
        )


def _check_names(prefix: str, section: Section, allowed: list[str], folders: Folders = OWN) -> None:
    dot = f"{prefix}." if prefix else ""
    for key in section:
        if key not in allowed and not (prefix in GROUPS and key == OPTION):
            listed = [dot + name for name in allowed]
            hint = f" Leave it out, or remove it: ~{dot}{key}." if owners(dot + key, folders) else ""
            message = f"{unknown_key(dot + key, folders, allowed)} Allowed: {', '.join(listed)}.{hint}"
            raise UnknownName(message, key=dot + key, value=section[key], allowed=listed)


def _check_values(prefix: str, section: Section, default: Section, rules: Mapping[str, Rule]) -> None:
    dot = f"{prefix}." if prefix else ""
    for key, value in section.items():
        rule = rule_for(rules, key, default.get(key))
        if rule is not None and not rule.accepts(value):
            hint = _hint(value, rule) if isinstance(value, str) else ""
            raise not_allowed(dot + key, value, rule.allowed, values=rule.values, shown=shown(value), hint=hint)


def _hint(value: str, rule: Rule) -> str:
    """A remedy for a text that its key does not accept; empty if none is known."""
    if re.fullmatch(r"[\w.+-]+", value) and rule.accepts(yaml_text.parse(value)):
        return f" {value} is a text here: leave out the quotes, or read variables as ${{oc.decode:${{oc.env:NAME}}}}."
    return nearest(value, filter(rule.accepts, rule.allowed.split(", ")))
