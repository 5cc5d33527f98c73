"""From what Hydra composed to the plain run config that is frozen: options looked up, keys and values checked.

``conf/`` is the schema: each option's file lists every key that it understands, with its default.
"""

import copy
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from manyheads.runner.config.rules import rule_for
from manyheads.runner.run.errors import ConfigurationError
from manyheads.runner.run.nearest import nearest, similar, suggest

CONF = Path(__file__).resolve().parents[2] / "conf"
GROUPS = ("model", "data", "task", "optimizer", "scheduler", "precision", "launcher", "parallel")
SECTIONS = ("loss", "trainer", "checkpoint")
NAMED = ("logger", "metrics", "callbacks")  # mappings from names to whatever has a _target_
_VOLATILE = re.compile(r"\$\{(now|hydra)[:.]")


def check(composed: DictConfig) -> dict[str, Any]:
    """The run config as plain values. Raises ConfigurationError for unknown keys, wrong types and ranges."""
    composed = copy.deepcopy(composed)
    OmegaConf.set_struct(composed, False)
    _refuse_volatile(OmegaConf.to_container(composed, resolve=False))
    try:
        config: dict[str, Any] = OmegaConf.to_container(composed, resolve=True, throw_on_missing=True)  # type: ignore
    except OmegaConfBaseException as error:
        raise ConfigurationError(_missing_or(error)) from None
    base = _read(CONF / "config.yaml")
    _check_names("", config, ["seed", *SECTIONS, *GROUPS, *NAMED])
    _check_values("", {"seed": config.setdefault("seed", base["seed"])}, base)
    for section in SECTIONS:
        _check_section(section, config, base[section], open_keys=section == "loss")
    for group in GROUPS:
        option = option_of(group, config.get(group))
        _check_own_name(group, config[group], option)
        _check_section(group, config, option or {}, open_keys=option is None)
    for section in NAMED:
        config[section] = config.get(section) or {}
        _check_named(section, config[section])
    return config


def is_run_config(composed: DictConfig) -> bool:
    """Whether it is one of ours; this project's sweep launcher may run other Hydra apps too."""
    return all(group in composed for group in GROUPS)


def options(group: str) -> list[str]:
    """The names of a group's options, in alphabetical order."""
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


@cache
def _read(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text())


def read_option(group: str, name: str) -> dict[str, Any]:
    """The keys of ``conf/<group>/<name>.yaml`` with their defaults."""
    if name not in options(group):
        raise ConfigurationError(no_such_option(group, name))
    content = _read(CONF / group / f"{name}.yaml")
    return dict(content.get(group, content))


def option_of(group: str, section: Any) -> dict[str, Any] | None:
    """The option that a composed section is an instance of; None when its keys are the user's own."""
    if not isinstance(section, dict):
        raise ConfigurationError(f"{group}={_shown(section)} is no option. Allowed: {', '.join(options(group))}.")
    target, name = section.get("_target_"), section.get("name")
    if target is None or name is None:
        missing = "_target_" if target is None else "name"
        raise ConfigurationError(f"{group}.{missing} is not set: choose {group}=<{'|'.join(options(group))}>.")
    candidates = [read_option(group, option) for option in sorted(options(group), key=lambda o: o != name)]
    return next((option for option in candidates if option["_target_"] == target), None)


def no_such_option(group: str, name: str) -> str:
    """The error's text for a name that is no option of the group."""
    known = options(group)
    return f"{group}={name}: there is no such option.{nearest(name, known)} Allowed: {', '.join(known)}."


def unknown_key(key: str) -> str:
    """What to say of a key that is not there: whose it is, or which of that or a similar name there are."""
    section, dot, name = key.rpartition(".")
    if section in GROUPS and key in known_keys():
        owners = [f"{section}={option}" for option in options(section) if name in read_option(section, option)]
        return f"{key} is a key of {', '.join(owners)} only."
    siblings = [known.rpartition(".")[2] for known in known_keys() if known.rpartition(".")[0] == section]
    found = [f"{section}{dot}{sibling}" for sibling in similar(name, siblings)]
    leaves = {known: known.rpartition(".")[2] for known in known_keys()}
    found = found or [known for known, leaf in leaves.items() if leaf == name]
    if not found and not (section and siblings):
        wanted_leaves = similar(name, sorted(set(leaves.values())))
        found = [known for wanted in wanted_leaves for known, leaf in leaves.items() if leaf == wanted]
    return f"{key} is not a key of the run config.{suggest(found[:3])}"


@cache
def known_keys() -> list[str]:
    """Every dotted key that some option understands."""
    base = _read(CONF / "config.yaml")
    sections = [(name, base[name]) for name in SECTIONS]
    sections += [(group, read_option(group, option)) for group in GROUPS for option in options(group)]
    return sorted({"seed", *GROUPS, *NAMED, *(f"{name}.{key}" for name, section in sections for key in section)})


def _refuse_volatile(value: Any, key: str = "") -> None:
    for name, item in _items(value):
        _refuse_volatile(item, f"{key}.{name}".lstrip("."))
    if isinstance(value, str) and _VOLATILE.search(value):
        raise ConfigurationError(
            f"{key}={value}: a run config may not depend on ${{now:}} or ${{hydra:}}, since a repeated run would "
            f"get another value. Allowed: plain values and references to other keys. Set {key} to one."
        )


def _items(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, list):
        yield from enumerate(value)


def _missing_or(error: OmegaConfBaseException) -> str:
    key = getattr(error, "full_key", None)
    if "Missing mandatory value" in str(error):
        return f"{key} is not set, and has no default. Set it: {key}=<value>."
    return f"{key}: {str(error).splitlines()[0]}. Set {key} to a plain value, or to a reference to another key."


def _check_section(name: str, config: dict, default: dict[str, Any], *, open_keys: bool) -> None:
    section = config.setdefault(name, {})
    if not isinstance(section, dict):
        raise ConfigurationError(f"{name}={_shown(section)}: allowed are keys below {name}: {', '.join(default)}.")
    for key, value in default.items():
        if key not in section and value == "???":
            raise ConfigurationError(f"{name}.{key} is not set, and has no default. Set it: {name}.{key}=<value>.")
        section.setdefault(key, value)
    if not open_keys and default.get("_target_") != "???":
        _check_names(name, section, list(default))
    _check_values(name, section, default)


def _check_named(section: str, entries: Any) -> None:
    """Each entry has a name that can be a column or a key, and says its class."""
    if not isinstance(entries, dict):
        raise ConfigurationError(f"{section}={_shown(entries)}: allowed are names below {section}, each a mapping.")
    for name, entry in entries.items():
        key = f"{section}.{name}"
        if not isinstance(name, str) or not name.isidentifier():
            raise ConfigurationError(f"{key}: {name} is no name. Allowed: letters, digits and underscores.")
        if not isinstance(entry, dict) or entry.get("_target_") is None:
            raise ConfigurationError(
                f"{key}={_shown(entry)} says no class. Set +{key}._target_=<class>, or leave it out with ~{key}."
            )
        _check_values(key, entry, {})


def _shown(value: Any) -> str:
    """A value as one writes it in YAML."""
    return json.dumps(value, ensure_ascii=False, default=str)


def _check_own_name(group: str, section: dict[str, Any], option: dict[str, Any] | None) -> None:
    """Of these groups each option is a class of its own, and what is known of it goes by its name."""
    if group in ("parallel", "precision", "launcher") and option and section["name"] != option["name"]:
        raise ConfigurationError(
            f"{group}.name={section['name']} does not go with {group}._target_={section['_target_']}. "
            f"Choose {group}=<{'|'.join(options(group))}> as a whole."
        )


def _check_names(prefix: str, section: dict, allowed: list[str]) -> None:
    dot = f"{prefix}." if prefix else ""
    for key in section:
        if key not in allowed:
            raise ConfigurationError(f"{unknown_key(dot + key)} Allowed: {', '.join(dot + name for name in allowed)}.")


def _check_values(prefix: str, section: dict, default: dict[str, Any]) -> None:
    dot = f"{prefix}." if prefix else ""
    for key, value in section.items():
        rule = rule_for(f"{dot}{key}", default.get(key))
        if rule is not None and not rule.accepts(value):
            raise ConfigurationError(f"{dot}{key}={_shown(value)} is not allowed. Allowed: {rule.allowed}.")
