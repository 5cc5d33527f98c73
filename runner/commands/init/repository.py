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
            return [argument.arg for argument in (*constructor.args.args[1:], *constructor.args.kwonlyargs)]
        return [field.target.id for field in self.fields]  # type: ignore[union-attr]  # a dataclass

    @property
    def required(self) -> list[str]:
        """The constructor's arguments that have no default."""
        constructor = self.methods.get("__init__")
        if constructor is None:
            return [field.target.id for field in self.fields if field.value is None]  # type: ignore[union-attr]
        named = [argument.arg for argument in constructor.args.args[1:]]
        keywords = zip(constructor.args.kwonlyargs, constructor.args.kw_defaults, strict=True)
        count = len(named) - len(constructor.args.defaults)
        return [*named[:count], *(argument.arg for argument, default in keywords if default is None)]

    @property
    def fields(self) -> list[ast.AnnAssign]:
        """The fields of a dataclass; none for other classes."""
        if not any("dataclass" in ast.unparse(decorator) for decorator in self.node.decorator_list):
            return []
        return [statement for statement in self.node.body if isinstance(statement, ast.AnnAssign)]

    @property
    def has_own_loss(self) -> bool:
        """Whether its forward takes labels, like models that return their own loss."""
        forward = self.methods.get("forward")
        return forward is not None and bool(LABELS & {argument.arg for argument in forward.args.args})


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
    classes = [cls for path, tree in trees.items() for cls in _classes(path, tree)]
    scripts = [path for path, tree in trees.items() if _trains(tree)]
    by_name = {cls.name: cls for cls in classes}
    for path, tree in trees.items():
        _note_uses(tree, by_name, is_script=path in scripts)
    models = [cls for cls in classes if _descends(cls, MODELS, by_name)]
    data_sets = [cls for cls in classes if cls not in models and _is_data(cls, by_name)]
    for kind in (models, data_sets):
        kind.sort(key=lambda cls: (-cls.uses, "test" in cls.path.parts, str(cls.path), cls.node.lineno))
    configs = [cls for cls in classes if cls.fields]
    optimizers = [call for path in scripts for call in _optimizers(trees[path])]
    return Repository(models, data_sets, configs, scripts, optimizers)


def _parsed(folder: Path) -> Iterator[tuple[Path, ast.Module]]:
    count = 0
    for parent, folders, names in os.walk(folder):
        here = Path(parent)
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".") and name not in PASSED_OVER and not (here / name / "pyvenv.cfg").exists()
        )
        for name in sorted(name for name in names if name.endswith(".py")):
            count += 1
            if count > MOST_FILES:
                return
            with suppress(OSError, ConfigurationError, SyntaxError, ValueError, RecursionError, MemoryError):
                yield here / name, ast.parse(read_text(here / name, most=MOST_BYTES))


def _classes(path: Path, tree: ast.Module) -> Iterator[FoundClass]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            bases = {ast.unparse(base).rpartition(".")[2].partition("[")[0] for base in node.bases}
            methods = {statement.name: statement for statement in node.body if isinstance(statement, ast.FunctionDef)}
            yield FoundClass(path, node, bases, methods, is_importable=not _works_on_import(tree))


def _works_on_import(tree: ast.Module) -> bool:
    """Whether importing the file would parse a command line or train, like a script without a main guard."""
    at_import = [
        statement
        for statement in tree.body
        if not isinstance(statement, (ast.ClassDef, ast.FunctionDef)) and not _guards(statement)
    ]
    calls = [node.func for statement in at_import for node in ast.walk(statement) if isinstance(node, ast.Call)]
    return any(
        isinstance(function, ast.Attribute) and function.attr in ("parse_args", "backward") for function in calls
    )


def _guards(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)


def _descends(cls: FoundClass, roots: set[str], by_name: dict[str, FoundClass], seen: tuple[str, ...] = ()) -> bool:
    if cls.bases & roots:
        return True
    inner = [by_name[base] for base in cls.bases if base in by_name and base not in seen]
    return any(_descends(base, roots, by_name, (*seen, cls.name)) for base in inner)


def _is_data(cls: FoundClass, by_name: dict[str, FoundClass]) -> bool:
    return _descends(cls, DATA_SETS, by_name) or {"__len__", "__getitem__"} <= cls.methods.keys()


def _trains(tree: ast.Module) -> bool:
    """Whether the file calls backward."""
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return any(isinstance(function, ast.Attribute) and function.attr == "backward" for function in calls)


def _optimizers(tree: ast.Module) -> Iterator[FoundOptimizer]:
    """The calls of classes of torch.optim, as torch.optim.SGD(...), optim.SGD(...) or SGD(...)."""
    modules, classes = {"torch.optim"}, dict[str, str]()  # what is imported: names of the module, and of its classes
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.asname for alias in node.names if alias.name == "torch.optim" and alias.asname}
        elif isinstance(node, ast.ImportFrom) and node.module == "torch":
            modules |= {alias.asname or alias.name for alias in node.names if alias.name == "optim"}
        elif isinstance(node, ast.ImportFrom) and node.module == "torch.optim":
            classes |= {alias.asname or alias.name: alias.name for alias in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            prefix, _, name = ast.unparse(node.func).rpartition(".")
            name = name if prefix in modules else classes.get(name, "") if not prefix else ""
            if name[:1].isupper():  # optim.step() is a call of a variable
                given = _plain_values(node, ["params", "lr"])
                written = {keyword.arg or "**": ast.unparse(keyword.value) for keyword in node.keywords}
                written |= dict(zip(["lr"], map(ast.unparse, node.args[1:]), strict=False))
                yield FoundOptimizer(name, given, {key: text for key, text in written.items() if key not in given})


def _note_uses(tree: ast.Module, by_name: dict[str, FoundClass], *, is_script: bool) -> None:
    """Count the calls of each class, and note the literal arguments that a training script passes."""
    inside = {call for statement in tree.body if isinstance(statement, ast.ClassDef) for call in ast.walk(statement)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        cls = by_name.get(ast.unparse(node.func).rpartition(".")[2])
        if cls is None:
            continue
        if is_script and node not in inside:
            cls.uses = max(cls.uses, 0) + 1
            cls.given |= _plain_values(node, cls.arguments)
        elif node in inside and not cls.uses:
            cls.uses = -1


def _plain_values(call: ast.Call, arguments: list[str]) -> dict[str, Plain]:
    pairs = [*zip(arguments, call.args, strict=False), *((keyword.arg, keyword.value) for keyword in call.keywords)]
    values: dict[str, object] = {}
    for name, value in pairs:
        with suppress(ValueError):
            if name is not None:
                literal = ast.literal_eval(value)
                values[name] = list(literal) if isinstance(literal, tuple) else literal
    return {name: value for name, value in values.items() if isinstance(value, (int, float, str, bool, list))}
