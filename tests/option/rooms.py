"""Finds where the source names an option, or a key that only some options of a group have, outside their own rooms."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from manyheads.runner.config.lookup import options, read_option
from manyheads.runner.option.declared import GROUPS
from manyheads.runner.option.tree import OPTION, TARGET
from tests.conftest import ROOT

ALL = {group: {name: read_option(group, name) for name in options(group)} for group in GROUPS}
# Keys that not all options of the group have.
OWN_KEYS = {
    group: {key for section in known.values() for key in section} - set.intersection(*map(set, known.values()))
    for group, known in ALL.items()
}
WORDS = {"single", "tensor", "replicated", "mesh", "pipeline"}  # have other meanings too, as most names of other groups
NAMES = {*ALL["parallel"], *ALL["launcher"]} - WORDS
DOTTED = re.compile(rf"({'|'.join(GROUPS)})\.(\w+)")
# What a group's base is, where it is not <group>_option: several machines have hosts, nodes and a rendezvous, and
# shards are read alike by several options.
MACHINES = ("launchers.launcher_option", "launchers.launcher", "launchers.nodes", "runner.run.hosts")
SHARDS = ("runner.data.data_option", "runner.data.sharded", "runner.data.shards")
BASES = {
    group: tuple(f"manyheads.{name}" for name in names) for group, names in (("launcher", MACHINES), ("data", SHARDS))
}


def foreign() -> Iterator[tuple[str, str]]:
    """File and what it names, for each place."""
    for folder in ("runner", "launchers"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for named in _named(ast.parse(path.read_text())):
                if not _is_own_room(path, *named):
                    yield str(path.relative_to(ROOT)), ".".join(filter(None, named))


def _named(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """("", option) for its name, ("import", option) for its code, (group, key) for a key that is read or written."""
    texts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    texts |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    texts |= {id(part) for node in ast.walk(tree) if isinstance(node, ast.Raise) for part in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in texts:
            if node.value in NAMES:
                yield "", node.value
            elif (found := DOTTED.fullmatch(node.value)) and found[2] in OWN_KEYS[found[1]]:
                yield found[1], found[2]
        elif (taken := _taken(node)) and taken[1] in OWN_KEYS.get(group := _group(taken[0]), ()):
            yield group, taken[1]
        elif isinstance(node, ast.ImportFrom):
            yield from (("import", name) for name, room in ROOMS.items() if _imports(node, room))


def _taken(node: ast.AST) -> tuple[ast.AST, str] | None:
    """For x["key"] and x.get("key"): x, and the key."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return node.value, str(node.slice.value)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args:
        return node.func.value, str(getattr(node.args[0], "value", ""))
    return None


def _group(node: ast.AST) -> str:
    """For config["group"] and run.group.section: the group. What run.group has of its own, a base class declares."""
    if isinstance(node, ast.Attribute) and node.attr == "section" and isinstance(node.value, ast.Attribute):
        return node.value.attr
    return (_taken(node) or (node, ""))[1]


def _imports(node: ast.ImportFrom, room: str) -> bool:
    return any(_is_in(f"{node.module}.{each.name}", room) for each in node.names)


def _is_own_room(path: Path, kind: str, named: str) -> bool:
    """Whether the file belongs to the option, to one that has the key, or to the base of the group."""
    module = ".".join(("manyheads", *path.relative_to(ROOT).with_suffix("").parts))
    if kind in ("", "import"):
        owners = [section for known in ALL.values() for name, section in known.items() if name == named]
        return any(_is_in(module, room) for section in owners for room in _rooms(section))
    bases = BASES.get(kind, (f"manyheads.runner.{kind}.{kind}_option", f"manyheads.runner.{kind}.rank.{kind}"))
    own = [room for section in ALL[kind].values() if named in section for room in _rooms(section)]
    return any(_is_in(module, room) for room in (*bases, *own))


def _rooms(section: dict[str, str]) -> list[str]:
    """The packages of an option's class and of its declarations."""
    parts = [str(section.get(key) or "").split(".") for key in (TARGET, OPTION)]
    known = [each for each in parts if each[0] == "manyheads"]
    return [".".join(each[: 3 if each[1] == "launchers" else 4 + (each[3] == "rank")]) for each in known]


def _is_in(module: str, room: str) -> bool:
    """Whether it is the room's module or in its folder, or one next to it whose name begins with the option's."""
    return f"{module}.".startswith((f"{room}.", f"{room}_"))


ROOMS = {name: room for group in ("parallel", "launcher") for name in ALL[group] for room in _rooms(ALL[group][name])}
ROOMS = {name: room for name, room in ROOMS.items() if room.endswith(f".{name}")}  # not those of several options
