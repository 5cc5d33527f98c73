"""Finds models, data sets and training scripts in a repository. Files are parsed; none is run or imported."""

import ast
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.data_files import read_text

Plain = int | float | str | bool | list[object]
MOST_FILES, MOST_BYTES = 2000, 2**20
PASSED_OVER = {"outputs", "build", "dist", "node_modules", "site-packages", "__pycache__"}  # folders to skip
MODELS = {"Module", "LightningModule", "PreTrainedModel"}
DATA_SETS = {"Dataset", "IterableDataset"}
LABELS = {"targets", "target", "labels", "label"}  # arguments of a forward that computes its own loss


@dataclass
class FoundClass:
    """A class in a repository.

    ``bases``: the names of its base classes. ``uses``: how often training scripts call it; -1 if only other classes do.
    ``given``: the arguments that a training script passes. ``is_importable``: whether importing its file runs no
    script.
    """

    path: Path
    node: ast.ClassDef
    bases: set[str]
    methods: dict[str, ast.FunctionDef]
    uses: int = 0
    given: dict[str, Plain] = field(default_factory=dict)
    is_importable: bool = True

    @property
    def name(self) -> str:
        """The name of the class."""
        return self.node.name

    @property
    def arguments(self) -> list[str]:
        """The constructor's arguments, without those that * and ** collect."""
        constructor = self.methods.get("__init__")
        if constructor is not None:
            return [each.arg for each in (*constructor.args.args[1:], *constructor.args.kwonlyargs)]
        return [each.target.id for each in self.fields]  # type: ignore[union-attr]  # a dataclass

    @property
    def required(self) -> list[str]:
        """The constructor's arguments that have no default."""
        constructor = self.methods.get("__init__")
        if constructor is None:
            return [each.target.id for each in self.fields if each.value is None]  # type: ignore[union-attr]
        named = [each.arg for each in constructor.args.args[1:]]
        keywords = zip(constructor.args.kwonlyargs, constructor.args.kw_defaults, strict=True)
        count = len(named) - len(constructor.args.defaults)
        return [*named[:count], *(each.arg for each, default in keywords if default is None)]

    @property
    def fields(self) -> list[ast.AnnAssign]:
        """The fields of a dataclass; none for other classes."""
        if not any("dataclass" in ast.unparse(each) for each in self.node.decorator_list):
            return []
        return [each for each in self.node.body if isinstance(each, ast.AnnAssign)]

    @property
    def has_own_loss(self) -> bool:
        """Whether its forward takes labels, like models that return their own loss."""
        forward = self.methods.get("forward")
        return forward is not None and bool(LABELS & {each.arg for each in forward.args.args})


class FoundOptimizer(NamedTuple):
    """A call of a class of torch.optim. ``given``: its plain arguments; ``others``: the text of those that are not."""

    name: str
    given: dict[str, Plain]
    others: dict[str, str]


@dataclass
class Repository:
    """Models and data sets found in a folder, the most likely ones first."""

    models: list[FoundClass]
    data_sets: list[FoundClass]
    configs: list[FoundClass]  # dataclasses, which models may take as arguments
    scripts: list[Path]  # training scripts
    optimizers: list[FoundOptimizer]  # that they create


def explore(folder: Path) -> Repository:
    """Parse the Python files below a folder, at most MOST_FILES. Files that cannot be read or parsed are skipped."""
    trees = dict(_parsed(folder))
    classes = [found for path, tree in trees.items() for found in _classes(path, tree)]
    scripts = [path for path, tree in trees.items() if _trains(tree)]
    by_name = {each.name: each for each in classes}
    for path, tree in trees.items():
        _note_uses(tree, by_name, is_script=path in scripts)
    models = [each for each in classes if _descends(each, MODELS, by_name)]
    data_sets = [each for each in classes if each not in models and _is_data(each, by_name)]
    for kind in (models, data_sets):
        kind.sort(key=lambda each: (-each.uses, "test" in each.path.parts, str(each.path), each.node.lineno))
    configs = [each for each in classes if each.fields]
    optimizers = [each for path in scripts for each in _optimizers(trees[path])]
    return Repository(models, data_sets, configs, scripts, optimizers)


def _parsed(folder: Path) -> Iterator[tuple[Path, ast.Module]]:
    count = 0
    for parent, folders, names in os.walk(folder):
        here = Path(parent)
        folders[:] = sorted(
            each
            for each in folders
            if not each.startswith(".") and each not in PASSED_OVER and not (here / each / "pyvenv.cfg").exists()
        )
        for name in sorted(each for each in names if each.endswith(".py")):
            count += 1
            if count > MOST_FILES:
                return
            with suppress(OSError, ConfigurationError, SyntaxError, ValueError, RecursionError, MemoryError):
                yield here / name, ast.parse(read_text(here / name, most=MOST_BYTES))


def _classes(path: Path, tree: ast.Module) -> Iterator[FoundClass]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            bases = {ast.unparse(base).rpartition(".")[2].partition("[")[0] for base in node.bases}
            methods = {each.name: each for each in node.body if isinstance(each, ast.FunctionDef)}
            yield FoundClass(path, node, bases, methods, is_importable=not _works_on_import(tree))


def _works_on_import(tree: ast.Module) -> bool:
    """Whether importing the file would parse a command line or train, like a script without a main guard."""
    at_import = [
        each for each in tree.body if not isinstance(each, (ast.ClassDef, ast.FunctionDef)) and not _guards(each)
    ]
    calls = [node.func for each in at_import for node in ast.walk(each) if isinstance(node, ast.Call)]
    return any(isinstance(each, ast.Attribute) and each.attr in ("parse_args", "backward") for each in calls)


def _guards(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)


def _descends(found: FoundClass, roots: set[str], by_name: dict[str, FoundClass], seen: tuple[str, ...] = ()) -> bool:
    if found.bases & roots:
        return True
    inner = [by_name[base] for base in found.bases if base in by_name and base not in seen]
    return any(_descends(each, roots, by_name, (*seen, found.name)) for each in inner)


def _is_data(found: FoundClass, by_name: dict[str, FoundClass]) -> bool:
    return _descends(found, DATA_SETS, by_name) or {"__len__", "__getitem__"} <= found.methods.keys()


def _trains(tree: ast.Module) -> bool:
    """Whether the file calls backward."""
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return any(isinstance(each, ast.Attribute) and each.attr == "backward" for each in calls)


def _optimizers(tree: ast.Module) -> Iterator[FoundOptimizer]:
    """The calls of classes of torch.optim, as torch.optim.SGD(...), optim.SGD(...) or SGD(...)."""
    modules, own = {"torch.optim"}, dict[str, str]()  # what is imported: names of the module, and of its classes
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {each.asname for each in node.names if each.name == "torch.optim" and each.asname}
        elif isinstance(node, ast.ImportFrom) and node.module == "torch":
            modules |= {each.asname or each.name for each in node.names if each.name == "optim"}
        elif isinstance(node, ast.ImportFrom) and node.module == "torch.optim":
            own |= {each.asname or each.name: each.name for each in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            place, _, name = ast.unparse(node.func).rpartition(".")
            name = name if place in modules else own.get(name, "") if not place else ""
            if name[:1].isupper():  # optim.step() is a call of a variable
                given = _plain_values(node, ["params", "lr"])
                written = {each.arg or "**": ast.unparse(each.value) for each in node.keywords}
                written |= dict(zip(["lr"], map(ast.unparse, node.args[1:]), strict=False))
                yield FoundOptimizer(name, given, {key: text for key, text in written.items() if key not in given})


def _note_uses(tree: ast.Module, by_name: dict[str, FoundClass], *, is_script: bool) -> None:
    """Count the calls of each class, and note the literal arguments that a training script passes."""
    inside = {call for each in tree.body if isinstance(each, ast.ClassDef) for call in ast.walk(each)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        found = by_name.get(ast.unparse(node.func).rpartition(".")[2])
        if found is None:
            continue
        if is_script and node not in inside:
            found.uses = max(found.uses, 0) + 1
            found.given |= _plain_values(node, found.arguments)
        elif node in inside and not found.uses:
            found.uses = -1


def _plain_values(call: ast.Call, arguments: list[str]) -> dict[str, Plain]:
    pairs = [*zip(arguments, call.args, strict=False), *((each.arg, each.value) for each in call.keywords)]
    values: dict[str, object] = {}
    for name, value in pairs:
        with suppress(ValueError):
            if name is not None:
                known = ast.literal_eval(value)
                values[name] = list(known) if isinstance(known, tuple) else known
    return {name: value for name, value in values.items() if isinstance(value, (int, float, str, bool, list))}
