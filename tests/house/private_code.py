"""The private names of other libraries that the project's code uses, read from its source.

Found are private modules and names that are imported, chains of attributes that start at an import, and attributes of
any other object if nothing in the project defines one of that name.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.house.imports import ROOT

PUBLIC = {"_asdict", "_fields", "_replace", "_value_", "_exit", "_getframe"}  # documented by Python
OURS = "manyheads"
LIST = ROOT / "tests" / "house" / "private_code.yaml"  # what is used, and what for
ACCESSES = {"getattr", "setattr", "hasattr", "delattr"}


def private_names() -> dict[str, set[str]]:
    """The files by name: ``torch._foreach_norm``, or ``_metadata`` for an attribute of an unknown object."""
    trees = {path: ast.parse(path.read_text()) for path in sources()}
    defined = {name for tree in trees.values() for name in definitions(tree)}
    files: dict[str, set[str]] = {}
    for path, tree in trees.items():
        for name in uses(tree, defined):
            files.setdefault(name, set()).add(str(path.relative_to(ROOT)))
    return files


def sources() -> Iterator[Path]:
    """The project's own modules."""
    yield ROOT / "run.py"
    for folder in ("runner", "launchers"):
        yield from (path for path in sorted((ROOT / folder).rglob("*.py")) if not path.is_symlink())


def definitions(tree: ast.AST) -> Iterator[str]:
    """The names that a module defines anywhere, as a function, a class, a variable or an attribute of ``self``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_self(node.value):
            yield node.attr


def uses(tree: ast.AST, defined: set[str]) -> Iterator[str]:
    """The private names of others that a module uses."""
    names: dict[str, str] = {}
    for name, target in imports(tree):
        names[name] = target
        if is_private(target):
            yield target
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ACCESSES:
            attribute = node.args[1] if len(node.args) > 1 else None
            if isinstance(attribute, ast.Constant) and is_private(str(attribute.value), defined):
                yield str(attribute.value)
        elif isinstance(node, ast.Attribute) and is_private(node.attr):
            root, *rest = chain(node)
            if root in names:
                if not names[root].startswith(OURS):
                    yield ".".join([names[root], *rest])
            elif not is_self(node.value) and node.attr not in defined:
                yield node.attr


def imports(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Each imported name with what it stands for."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield (
                    alias.asname or alias.name.partition(".")[0],
                    alias.name if alias.asname else alias.name.partition(".")[0],
                )
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def chain(node: ast.expr) -> list[str]:
    """The names of ``a.b.c``; [""] in place of anything else than a name at its start."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return [node.id if isinstance(node, ast.Name) else "", *reversed(names)]


def is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def is_private(name: str, defined: set[str] = frozenset()) -> bool:  # type: ignore[assignment]
    """Whether a dotted name has a private part that is another library's."""
    if name.startswith((OURS, "__future__")) or name in defined:
        return False
    parts = [part for part in name.split(".") if part.startswith("_") and not part.startswith("__")]
    return bool(parts) and not {*parts} <= PUBLIC
