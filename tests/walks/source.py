"""The project's functions and classes as they are read from its source, and the layers that they lie in."""

import ast
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OURS = ("runner", "launchers")


@dataclass
class Function:
    name: str  # dotted, with its module and class
    file: Path
    node: ast.FunctionDef | ast.AsyncFunctionDef
    owner: str | None  # the class that it is a method of

    @property
    def parameters(self) -> list[str]:
        given = self.node.args
        return [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]

    @property
    def is_static(self) -> bool:
        return any(ast.unparse(each) == "staticmethod" for each in self.node.decorator_list)


@dataclass
class Source:
    """All functions and classes of the project by dotted name, and what each module calls them."""

    functions: dict[str, Function] = field(default_factory=dict)
    classes: dict[str, list[str]] = field(default_factory=dict)  # the names of their bases
    fields: dict[str, list[str]] = field(
        default_factory=dict
    )  # of a class: what its constructor takes without __init__
    names: dict[str, dict[str, str]] = field(default_factory=dict)  # of a module
    places: dict[str, Path] = field(default_factory=dict)  # of a class

    @classmethod
    def read(cls, root: Path) -> "Source":
        source = cls()
        for file in sorted(path for folder in OURS for path in (root / folder).rglob("*.py")):
            module = ".".join(("manyheads", *file.relative_to(root).with_suffix("").parts)).removesuffix(".__init__")
            tree = ast.parse(file.read_text())
            source.names[module] = names = {}
            for node in ast.walk(tree):
                if isinstance(node, ast.ImportFrom) and node.module:
                    names |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
            source._add(tree.body, module, file.relative_to(root), None, names)
        return source

    def _add(self, body: list[ast.stmt], prefix: str, file: Path, owner: str | None, names: dict[str, str]) -> None:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                name = f"{prefix}.{node.name}"
                self.functions[name] = Function(name, file, node, owner)
                names.setdefault(node.name, name) if owner is None else None
            elif isinstance(node, ast.ClassDef):
                name = f"{prefix}.{node.name}"
                names.setdefault(node.name, name)
                self.places[name] = file
                self.classes[name] = [names.get(base.id, "") for base in node.bases if isinstance(base, ast.Name)]
                annotated = [each for each in node.body if isinstance(each, ast.AnnAssign)]
                self.fields[name] = [each.target.id for each in annotated if isinstance(each.target, ast.Name)]
                self._add(node.body, name, file, name, names)

    @cached_property
    def methods(self) -> dict[str, list[Function]]:
        found: dict[str, list[Function]] = {}
        for function in self.functions.values():
            if function.owner:
                found.setdefault(function.name.rpartition(".")[2], []).append(function)
        return found

    def lineage(self, name: str) -> Iterator[str]:
        yield name
        for base in self.classes.get(name, []):
            yield from self.lineage(base)

    def method(self, owner: str, name: str) -> Function | None:
        each = (self.functions.get(f"{kind}.{name}") for kind in self.lineage(owner))
        return next((found for found in each if found), None)


class Layers:
    """import-linter's layers: how high a module lies, 0 for the lowest."""

    def __init__(self, root: Path):
        contracts = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
        rows = next(each["layers"] for each in contracts if each["type"] == "layers")
        self.heights = {
            room.strip(): height
            for height, row in enumerate(reversed(rows))
            for room in row.replace(":", "|").split("|")
        }

    def height(self, name: str) -> int:
        return max((height for room, height in self.heights.items() if f"{name}.".startswith(f"{room}.")), default=-1)


def module_of(source: Source, function: Function) -> str:
    parts = function.name.split(".")
    return next(".".join(parts[:n]) for n in range(len(parts), 0, -1) if ".".join(parts[:n]) in source.names)
