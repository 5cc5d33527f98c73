"""Looks up options as Hydra does: files in the folders that it searches, this project's ``conf/`` first.

``conf/`` is the schema: each option's file lists every key that it understands, with its default.
"""

import importlib.util
import json
import os
import re
from collections.abc import Iterable, Mapping
from functools import cache, partial
from itertools import takewhile
from pathlib import Path
from typing import Any

from manyheads.runner.config.code_files import KIND, absolute
from manyheads.runner.config.project import conf_of
from manyheads.runner.errors import ConfigurationError, UnknownName, printable
from manyheads.runner.option.declared import ENTRIES, GROUPS, declared
from manyheads.runner.option.tree import TARGET, Section, with_targets
from manyheads.runner.run import yaml_text
from manyheads.runner.run.seal import is_own_place, project_of
from manyheads.runner.wording import nearest, similar, suggest

CONF = Path(__file__).resolve().parents[2] / "conf"
SECTIONS = ("loss", "parameters", "trainer", "checkpoint")
ABOUT = ("name", "tags", "notes")  # the user's description of a run, which changes no result
NAMED = ("logger", "metrics", "callbacks")  # mappings from names to sections with a _target_

Folders = tuple[Path, ...]
OWN: Folders = (CONF,)
LIBRARIES = {"optimizer": "torch.optim", "scheduler": "torch.optim.lr_scheduler"}  # where people know classes from


def searched(sources: Iterable[Mapping[str, str]]) -> Folders:
    """The folders that Hydra searched, from its own record ``hydra.runtime.config_sources``."""
    folders = [folder for source in sources if (folder := _folder(source["schema"], source["path"])) is not None]
    return tuple(dict.fromkeys((CONF, *folders)))


def package_folder(name: str) -> Path | None:
    """The folder of the package ``my_package/configs`` or ``my_package.configs``, or None. Imports its parents."""
    try:
        spec = importlib.util.find_spec(name.strip("/").replace("/", "."))
    except ModuleNotFoundError:
        return None
    return Path(spec.submodule_search_locations[0]) if spec and spec.submodule_search_locations else None


def _folder(schema: str, path: str) -> Path | None:
    if schema == "file":
        return Path(path)
    return package_folder(path) if schema == "pkg" and path.partition(".")[0] != "hydra" else None


def options(group: str, folders: Folders = OWN) -> list[str]:
    """The names of a group's options, in alphabetical order."""
    return sorted({name for folder in folders for name in _names(folder / group)})


@cache
def _names(folder: Path) -> frozenset[str]:
    return frozenset(path.stem for path in folder.glob("*.yaml"))


def forget() -> None:
    """Forget which options exist, after this process has written one."""
    _names.cache_clear()


@cache
def read(path: Path) -> dict[str, Any]:
    """The content of a config file, by a parser that creates plain values only."""
    content = yaml_text.parse(path.read_text())
    return content if isinstance(content, dict) else {}


def package_of(text: str) -> str | None:
    """The package of a config file, by Hydra's rule: a comment ``# @package``, above every other line."""
    lines = (line.strip() for line in text.splitlines())
    head = takewhile(lambda line: not line or re.match(r"#\s*@", line), lines)
    return next((match[1] for line in head if (match := re.match(r"#\s*@package\s+(\S+)", line))), None)


def read_option(group: str, name: str, folders: Folders = OWN, *, above: tuple[str, ...] = ()) -> Section:
    """The keys of ``<group>/<name>.yaml`` with their defaults, including those of the options in its defaults list.

    above: the options that include this one, which it cannot include in turn.
    """
    folder = next((folder for folder in folders if os.path.isfile(folder / group / f"{name}.yaml")), None)
    if folder is None:
        raise no_such_option(group, name, folders)
    content = read(folder / group / f"{name}.yaml")
    above = (*above, name)
    names = [base for base in options(group, folders) if base not in above]
    bases = [read_option(group, base, folders, above=above) for base in content.get("defaults") or [] if base in names]
    keys = content.get(group, {key: value for key, value in content.items() if key != "defaults"})
    if folder != CONF:
        keys = with_targets(keys, partial(absolute, projects=[project_of(folder)]))
    return {key: value for base in (*bases, keys) for key, value in base.items()}


def own_sections(group: str) -> list[Section]:
    """The contents of this project's own options of a group; for a group of entries, those of the entries.

    Empty for any other name.
    """
    if group not in (*GROUPS, *NAMED):
        return []
    contents = [read_option(group, name) for name in options(group)]
    return [entry for content in contents for entry in content.values()] if group in NAMED else contents


def option_of(group: str, section: Any, folders: Folders = OWN) -> Section | None:
    """The option that a composed section is an instance of; None if its keys are the user's own."""
    names = options(group, folders)
    if not isinstance(section, dict):
        raise ConfigurationError(
            f"{group}={shown(section)} is not an option. Allowed: {', '.join(names)}.",
            allowed=names,
            key=group,
            value=shown(section),
        )
    target, name = section.get("_target_"), section.get("name")
    if target is None or name is None:
        missing = "_target_" if target is None else "name"
        message = f"{group}.{missing} is not set: choose {group}=<{'|'.join(names)}>."
        raise ConfigurationError(message, key=f"{group}.{missing}", allowed=names)
    candidates = (read_option(group, option, folders) for option in sorted(names, key=lambda o: o != name))
    return next((option for option in candidates if option.get("_target_") == target), None)


def refuse_hidden(group: str, section: Section, folders: Folders = OWN) -> None:
    """Raises ConfigurationError if the option hides one of that name and another class in a later folder."""
    name, taken = section["name"], section["_target_"]
    paths = [path for folder in folders if os.path.isfile(path := folder / group / f"{name}.yaml")]
    targets = {path: (content := read(path)).get(group, content).get("_target_", taken) for path in paths}
    if taken not in targets.values():  # the name is one of a library's that the user chose, as with model=timm
        return
    for path, target in targets.items():
        if target != taken:
            raise ConfigurationError.at(group, name, f" is {taken}, which hides {path}. Rename the file.")


def entry_option(group: str, entry: Section, folders: Folders = OWN) -> Section | None:
    """The entry of an option of the group that has this entry's class, with its defaults; None if there is none."""
    entries = (other for name in options(group, folders) for other in read_option(group, name, folders).values())
    return next((other for other in entries if other["_target_"] == entry["_target_"]), None)


def unavailable(group: str, option: str, folders: Folders = OWN) -> str | None:
    """Why an option cannot run on this machine, and how to install it; None if it can."""
    section = read_option(group, option, folders)
    sections = section.values() if group in ENTRIES else [section]
    return next((reason for keys in sections if (reason := declared(group, keys).unavailable())), None)


def no_such_option(group: str, name: str, folders: Folders = OWN) -> UnknownName:
    """The error for a name that is not an option of the group."""
    names = options(group, folders)
    hint = _unread(group, name) or _class_of(group, name) or nearest(name, names)
    message = f"{group}={name}: there is no such option.{hint} Allowed: {', '.join(names)}."
    return UnknownName(message, key=group, value=name, allowed=names)


def _class_of(group: str, name: str) -> str:
    """A sentence on how to choose a class, if that is what the name of an option looks like; else empty."""
    if KIND not in options(group):
        return ""
    if name.endswith(".py"):
        return f" Name the class in it, too: {group}={name}:<class>."
    if group == "data" and name.endswith((".csv", ".tsv", ".parquet")):
        return f" To train on a table: data=table data.root={name} data.target=<column>."
    library = LIBRARIES.get(group)
    if re.fullmatch(r"\w+(\.\w+)+", name):
        target = name
    elif library is None or similar(name, options(group)):
        return ""
    else:
        target = f"{library}.{name if name[:1].isupper() else '<class>'}"
    return f" A class is chosen with {group}={KIND} {group}.{TARGET}={target}."


def _unread(group: str, name: str) -> str:
    """A sentence if the working directory's own conf/ has the option, but was not read; else empty."""
    conf = conf_of(Path.cwd())
    if conf is None or is_own_place(conf.resolve()) or not os.path.isfile(conf / group / f"{name}.yaml"):
        return ""
    where = printable(os.path.relpath(conf / group / f"{name}.yaml"))
    return f" {where} was not read, since its folder is not trusted as your own."


def owners(key: str, folders: Folders = OWN) -> list[str]:
    """The options that have this key, as they are typed; none if it is not a key of any option's group."""
    group, _, name = key.rpartition(".")
    if group not in GROUPS:
        return []
    return [f"{group}={option}" for option in options(group, folders) if name in read_option(group, option, folders)]


def keys_beside(key: str, folders: Folders = OWN) -> list[str]:
    """The keys of the section in which this key would be, of any of its options."""
    section = key.rpartition(".")[0]
    return [sibling for sibling in known_keys(folders) if sibling.rpartition(".")[0] == section]


def unknown_key(key: str, folders: Folders = OWN, allowed: Iterable[str] | None = None) -> str:
    """The error message for an unknown key: which options have it, or which keys have the same or a similar name.

    allowed: the names of its section's keys, if the options are known; then nothing else is suggested.
    """
    section, dot, name = key.rpartition(".")
    if matches := owners(key, folders):
        return f"{key} is a key of {', '.join(matches)} only."
    if allowed is not None:
        matches = [f"{section}{dot}{match}" for match in similar(name, allowed)]
        return f"{key} is not a key of the run config.{suggest(matches)}"
    siblings = [full_key.rpartition(".")[2] for full_key in keys_beside(key, folders)]
    matches = [f"{section}{dot}{sibling}{_of_few(section, sibling, folders)}" for sibling in similar(name, siblings)]
    leaves = {full_key: full_key.rpartition(".")[2] for full_key in known_keys(folders)}
    matches = matches or [full_key for full_key, leaf in leaves.items() if leaf == name]
    if not matches and not (section and siblings):
        wanted_leaves = similar(name, sorted(set(leaves.values())))
        matches = [full_key for wanted in wanted_leaves for full_key, leaf in leaves.items() if leaf == wanted]
    return f"{key} is not a key of the run config.{suggest(matches[:3])}"


def _of_few(section: str, name: str, folders: Folders) -> str:
    """Which options have a key that most of its group lack, in brackets, so that it is not taken for one of them."""
    few = owners(f"{section}.{name}", folders)
    return f" (of {', '.join(few)})" if few and 2 * len(few) < len(options(section, folders)) else ""


@cache
def known_keys(folders: Folders = OWN) -> list[str]:
    """All dotted keys of all options."""
    base = read(CONF / "config.yaml")
    sections = [(name, base[name]) for name in SECTIONS]
    sections += [(group, read_option(group, option, folders)) for group in GROUPS for option in options(group, folders)]
    sections += [
        (f"{group}.{name}", entry)
        for group in ENTRIES
        for option in options(group, folders)
        for name, entry in read_option(group, option, folders).items()
    ]
    return sorted(
        {"seed", *ABOUT, *GROUPS, *NAMED, *(f"{name}.{key}" for name, section in sections for key in section)}
    )


def shown(value: Any) -> str:
    """A value as it is written in YAML."""
    return json.dumps(value, ensure_ascii=False, default=str)
