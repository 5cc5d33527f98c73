"""JSON Schema of the config, from the same conf/ and rules that check it; editors complete and check YAML with it.

Two forms: ``run_schema`` describes run.yaml, in which every key has a value; ``file_schema`` and ``option_schema``
describe files that are written by hand, in which all keys may be left out and any value may be an interpolation.
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from manyheads.runner.config.lookup import (
    ABOUT,
    CONF,
    NAMED,
    OWN,
    SECTIONS,
    Folders,
    no_such_option,
    options,
    read,
    read_option,
)
from manyheads.runner.config.meanings import described, description
from manyheads.runner.config.run_rules import RULES, rules_of
from manyheads.runner.errors import UnknownName
from manyheads.runner.option.declared import ENTRIES, GROUPS, declared_class
from manyheads.runner.option.rules import CLASS, Rule, rule_for
from manyheads.runner.option.tree import OPTION, TARGET
from manyheads.runner.run.json_schema import DIALECT, Schema, to_json
from manyheads.runner.wording import nearest

REFERENCE = {"type": "string", "pattern": r"\$\{|^\?\?\?$"}  # an interpolation, or a value that is still to be set
DEFAULTS = {"type": "array", "description": "Hydra's defaults list: the options that this file chooses"}
SCHEMA = "schema.json"  # its file in a conf/ folder, for editors
KINDS = ("config", "experiment", *GROUPS, *NAMED)


def schema_for(words: str, folders: Folders = OWN) -> Schema:
    """The schema of ``config`` (run.yaml), ``experiment``, a group, or an option, as ``parallel=fsdp``.

    Raises UnknownName for anything else.
    """
    group, _, name = words.partition("=")
    if group in (*GROUPS, *NAMED) and name:
        if name not in options(group, folders):
            raise no_such_option(group, name, folders)
        return _root(words, option_schema(group, name, folders, written=True))
    if words in GROUPS:
        schema: Schema = {"type": "object", "properties": _keys_of_group(words, folders)}
        return _root(f"an option of {words}", schema)
    if words in NAMED:
        return _root(f"an option of {words}", _entries(words, folders, written=True))
    if words in ("config", "experiment"):
        return run_schema(folders) if words == "config" else file_schema(folders)
    message = f"{words}: there is no such schema.{nearest(words, KINDS)} Allowed: {', '.join(KINDS)}, or group=option."
    raise UnknownName(message, key="schema", value=words, allowed=KINDS)


def run_schema(folders: Folders = OWN) -> Schema:
    """The schema of run.yaml, with all options that the folders have."""
    definitions = {
        f"{group}={name}": option_schema(group, name, folders) for group in GROUPS for name in options(group, folders)
    }
    properties = {
        **_top(),
        **{name: _section(name) for name in SECTIONS},
        **{name: _entries(name, folders) for name in NAMED},
        **{group: _group(group, folders) for group in GROUPS},
    }
    return {
        **_root("run.yaml: the config of a run", _object(properties, required=[*properties])),
        "$defs": definitions,
    }


def file_schema(folders: Folders = OWN) -> Schema:
    """The schema of an experiment, or of another file that sets keys of any section."""
    properties = {
        "defaults": DEFAULTS,
        "hydra": {"type": "object"},
        **_written(_top()),
        **{name: _section(name, written=True) for name in SECTIONS},
        **{name: _entries(name, folders, written=True) for name in NAMED},
        **{group: {"type": "object", "properties": _keys_of_group(group, folders)} for group in GROUPS},
    }
    return _root("an experiment: keys that are set over the groups' options", _object(properties))


def schema_of_files(conf: Path) -> str:
    """The JSON Schema of the experiments in a conf/ folder, as text."""
    return json.dumps(file_schema((*OWN, conf)), ensure_ascii=False) + "\n"


def option_schema(group: str, name: str, folders: Folders = OWN, *, written: bool = False) -> Schema:
    """The schema of an option's section of run.yaml; with ``written``, of the option's YAML file."""
    content = read_option(group, name, folders)
    if group in NAMED:
        return _entries(group, folders, written=written)
    path = _file(group, name, folders)
    declares = declared_class(group, content)
    properties = _keys(content, declares.all_rules(), _meanings(path, group))
    properties["name"] = {"const": content["name"]} if declares.has_own_class else {"type": "string"}
    is_open = content.get(TARGET) == "???"
    if written:
        return {
            **_object({**_written(properties), "defaults": DEFAULTS}, closed=not is_open),
            "description": description(path),
        }
    properties.setdefault(OPTION, dict(CLASS.schema))
    required = [key for key in properties if key != OPTION]
    return {**_object(properties, required=required, closed=not is_open), "description": description(path)}


def _top() -> dict[str, Schema]:
    base, meanings = read(CONF / "config.yaml"), _meanings(CONF / "config.yaml")
    return _keys({key: base[key] for key in (*ABOUT, "seed")}, RULES, meanings)


def _section(name: str, *, written: bool = False) -> Schema:
    """One of the sections that every run has."""
    content = read(CONF / "config.yaml")[name]
    properties = _keys(content, rules_of(name), _meanings(CONF / "config.yaml", name))
    is_open = name == "loss"
    return (
        _object(_written(properties), closed=not is_open)
        if written
        else _object(properties, required=[*properties], closed=not is_open)
    )


def _group(group: str, folders: Folders) -> Schema:
    """A group's section: the option's own schema, if the class is an option's; else the keys are the user's own."""
    by_target: dict[str, list[str]] = {}
    for name in options(group, folders):
        by_target.setdefault(read_option(group, name, folders)[TARGET], []).append(name)
    rules: list[Schema] = []
    for target, names in by_target.items():
        for name in names if target != "???" else ():
            declared_name = read_option(group, name, folders)["name"]
            when: Schema = {TARGET: {"const": target}, **({"name": {"const": declared_name}} if len(names) > 1 else {})}
            then = {"$ref": f"#/$defs/{group}={name}"}
            rules.append({"if": {"properties": when, "required": [*when]}, "then": then})
    common = {TARGET: CLASS.schema, "name": {"type": "string"}}
    return {"type": "object", "properties": common, "required": [*common], "allOf": rules}


def _keys_of_group(group: str, folders: Folders) -> dict[str, Schema]:
    """All keys that any option of a group has, each with the options that it needs."""
    schemas: dict[str, dict[str, Schema]] = {}
    for name in options(group, folders):
        for key, schema in option_schema(group, name, folders, written=True)["properties"].items():
            schemas.setdefault(key, {})[name] = schema
    merged: dict[str, Schema] = {}
    for key, by_option in schemas.items():
        distinct = [form for at, form in enumerate(by_option.values()) if form not in [*by_option.values()][:at]]
        needs = f"Needs {group}={' or '.join(by_option)}. " if len(by_option) < len(options(group, folders)) else ""
        about = next((text for form in distinct if (text := form.get("description"))), "")
        bare = [
            {name: value for name, value in form.items() if name not in ("description", "default")} for form in distinct
        ]
        unlike = [form for at, form in enumerate(bare) if form not in bare[:at]]
        merged[key] = {
            **(unlike[0] if len(unlike) == 1 else {"anyOf": unlike}),
            "description": f"{needs}{about}".strip(),
        }
    merged[TARGET] = {"anyOf": [CLASS.schema, REFERENCE], "description": "the class; choosing an option sets it"}
    merged["name"] = {"type": "string"}
    return merged


def _entries(group: str, folders: Folders, *, written: bool = False) -> Schema:
    """A mapping from names to sections, each with a class; if the class is an option's, with the option's keys."""
    entries: dict[str, Schema] = {}
    for option in options(group, folders):
        meanings = _meanings(_file(group, option, folders), group)
        for name, content in read_option(group, option, folders).items():
            rules = declared_class(group, content).all_rules() if group in ENTRIES else {}
            keys = _keys(content, rules, {key.removeprefix(f"{name}."): text for key, text in meanings.items()})
            keys.setdefault(OPTION, dict(CLASS.schema))
            when = {"properties": {TARGET: {"const": content[TARGET]}}, "required": [TARGET]}
            shown = _written(keys) if written else keys
            entries[name] = {"if": when, "then": _object(shown, closed=group in ENTRIES)} if group in ENTRIES else {}
    values: Schema = {"type": "object", "properties": {TARGET: CLASS.schema}}
    if not written:
        values["required"] = [TARGET]
    if rules_of_entries := [entry_keys for entry_keys in entries.values() if entry_keys]:
        values["allOf"] = rules_of_entries
    mapping: Schema = {"type": "object", "propertyNames": {"pattern": r"^[^\W\d]\w*$"}, "additionalProperties": values}
    return {"anyOf": [mapping, {"type": "array", "items": {"type": "string"}}]} if written else mapping


def _keys(content: Mapping[str, Any], rules: Mapping[str, Rule], meanings: Mapping[str, str]) -> dict[str, Schema]:
    properties = {}
    for key, default in content.items():
        rule = rule_for(rules, key, default)
        about = {"description": meanings[key]} if meanings.get(key) else {}
        shown = {"default": value} if (value := to_json(default)) is not None and value != "???" else {}
        properties[key] = {**({} if rule is None else rule.schema), **about, **shown}
    return properties


def _written(properties: Mapping[str, Schema]) -> dict[str, Schema]:
    """The same keys in a file, where a value may also refer to another key."""
    kept = ("description", "default")
    return {
        key: {
            "anyOf": [{name: value for name, value in schema.items() if name not in kept}, REFERENCE],
            **{name: schema[name] for name in kept if name in schema},
        }
        for key, schema in properties.items()
    }


def _object(properties: Mapping[str, Schema], *, required: list[str] | None = None, closed: bool = True) -> Schema:
    return {
        "type": "object",
        "properties": dict(properties),
        **({"required": required} if required else {}),
        **({"additionalProperties": False} if closed else {}),
    }


def _root(title: str, schema: Schema) -> Schema:
    return {"$schema": DIALECT, "title": title, **schema}


def _file(group: str, name: str, folders: Folders) -> Path:
    return next(path for folder in folders if (path := folder / group / f"{name}.yaml").is_file())


@cache
def _meanings(path: Path, section: str = "") -> dict[str, str]:
    """The meanings of the keys of a section, by key; without those of files that it includes."""
    rows = described(path, "" if path == CONF / "config.yaml" else section)
    prefix = f"{section}." if section else ""
    return {row.key.removeprefix(prefix): row.meaning for row in rows if row.key.startswith(prefix)}
