"""What the modules of this project import of each other, found by reading them; nothing is imported.

    python -m tests.house.imports judge                  # the modules and functions outside a wing that import it
    python -m tests.house.imports                        # what a plain run needs

An import under TYPE_CHECKING is none. A package's __init__ counts with every module in it.
"""

import ast
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.house.wings import WINGS

ROOT = Path(__file__).resolve().parents[2]
ENTRIES = tuple(
    f"manyheads.{name}"
    for name in ("runner.app", "launchers.experiment", "runner.loop.rank_main", "runner.loop.session")  # of a plain run
)


class Import(NamedTuple):
    """``by``: the function that imports ``module`` when it is called; "" for an import at the top of ``importer``."""

    importer: str
    module: str
    by: str


@cache
def modules() -> dict[str, str]:
    """The file of each module of ours, relative to the project, by its dotted name."""
    named = {}
    for top in ("runner", "launchers", "tests"):
        for path in sorted((ROOT / top).rglob("*.py")):
            path = path.relative_to(ROOT)
            parts = path.parent.parts if path.name == "__init__.py" else path.with_suffix("").parts
            named[".".join(parts if top == "tests" else ("manyheads", *parts))] = path.as_posix()
    return named


def imports() -> Iterator[Import]:
    """All imports of our modules by our modules."""
    return (one for module in modules() for one in imports_of(module))


@cache
def imports_of(module: str) -> tuple[Import, ...]:
    """All imports of our modules by this one."""
    return tuple(dict.fromkeys((*_parents(module), *_of(module))))


@cache
def importers_of() -> dict[str, set[str]]:
    """By module, those that can't be imported without it."""
    by_module: dict[str, set[str]] = {}
    for one in imports():
        if not one.by:
            by_module.setdefault(one.module, set()).add(one.importer)
    return by_module


def _parents(module: str) -> Iterator[Import]:
    parent = module.rpartition(".")[0]
    if parent in modules():
        yield Import(module, parent, "")


def _of(module: str) -> Iterator[Import]:
    todo: list[tuple[ast.AST, str]] = [(ast.parse((ROOT / modules()[module]).read_text()), "")]
    while todo:
        above, by = todo.pop()
        for node in _statements(above):
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
                continue
            for name in _names(node, module):
                if (imported := _module_of(name)) is not None:
                    yield Import(module, imported, by)
            is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            todo.append((node, node.name if is_function and not by else by))


def _statements(above: ast.AST) -> Iterator[ast.AST]:
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        within = getattr(above, name, ())
        yield from within if isinstance(within, list) else ()


def _names(node: ast.AST, module: str) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    package = module if modules()[module].endswith("/__init__.py") else module.rpartition(".")[0]
    above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
    return [".".join(filter(None, (*above, node.module, alias.name))) for alias in node.names]


def _module_of(name: str) -> str | None:
    while name and name not in modules():
        name = name.rpartition(".")[0]
    return None if name in ("", "manyheads") else name


def needed() -> set[str]:
    """The modules that a plain run needs, including what functions import."""
    needed: set[str] = set()
    todo = list(ENTRIES)
    while todo:
        module = todo.pop()
        if module not in needed:
            needed.add(module)
            todo += [one.module for one in imports_of(module)]
    return needed


def deleted(paths: Iterable[str]) -> set[str]:
    """The modules that are gone with these files and folders."""
    gone = tuple(f"{path}/" for path in paths)
    return {module for module, path in modules().items() if f"{path}/".startswith(gone)}


def broken(paths: Iterable[str]) -> set[str]:
    """The modules that can no longer be imported without these files and folders."""
    gone = deleted(paths)
    lost, todo = set[str](), list(gone)
    while todo:
        module = todo.pop()
        if module not in lost:
            lost.add(module)
            todo += importers_of().get(module, ())
    return lost - gone


def importers(paths: Iterable[str]) -> set[str]:
    """The functions of the product outside these files and folders that import them when they are called."""
    gone = deleted(paths)
    return {
        f"{one.importer.removeprefix('manyheads.')}:{one.by}"
        for one in imports()
        if one.by and one.module in gone and one.importer not in gone and not one.importer.startswith("tests.")
    }


def main() -> None:
    """Print what ``__doc__`` says."""
    if not sys.argv[1:]:
        print("\n".join(sorted(needed())))
    for name in sys.argv[1:]:
        gone = deleted(WINGS[name])
        for one in sorted(imports()):
            if one.module in gone and one.importer not in gone:
                print(f"{name}: {one.importer}{one.by and f':{one.by}'} imports {one.module}")
        print(f"{name}: {len(gone)} modules, without which {len(broken(WINGS[name]))} can't be imported")


if __name__ == "__main__":
    main()
