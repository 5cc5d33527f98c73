"""Finds models, data sets and training scripts in a repository. Files are parsed; none is run or imported."""

import ast
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from manyheads.runner.commands.init.found_class import FoundClass
from manyheads.runner.commands.init.imports import Imports
from manyheads.runner.commands.init.script import Script, last_name
from manyheads.runner.commands.init.values import Computed
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.data_files import read_text

MOST_FILES, MOST_BYTES = 2000, 2**20
PASSED_OVER = {"outputs", "build", "dist", "node_modules", "site-packages", "__pycache__"}  # folders to skip
MODELS = {"Module", "Sequential", "LightningModule", "PreTrainedModel"}
DATA_SETS = {"Dataset", "IterableDataset"}


@dataclass
class Repository:
    """Models, data sets and training scripts found in a folder, the most likely ones first.

    ``configs``: dataclasses, which models may take as arguments. ``unread``: why files were skipped, by path.
    """

    folder: Path
    trees: dict[Path, ast.Module]
    unread: dict[Path, str]
    imports: Imports
    classes: list[FoundClass]
    models: list[FoundClass]
    data_sets: list[FoundClass]
    configs: list[FoundClass]
    scripts: list[Path]

    def read(self, *paths: Path) -> list[Script]:
        """Read scripts, and count and rank the classes by their use in them."""
        for cls in self.classes:
            cls.uses, cls.given, cls.computed, cls.is_optimized = 0, {}, {}, False
        scripts = [*map(self._note_uses, paths)]
        for kind in (self.models, self.data_sets):
            kind.sort(
                key=lambda cls: (
                    *("loss" in cls.name.lower(), not cls.is_optimized, -cls.uses, "test" in cls.path.parts),
                    *(str(cls.path), cls.node.lineno),
                )
            )
        return scripts

    def class_of(self, script: Script, call: ast.Call) -> FoundClass | None:
        """The class that a script's call creates: one in the same file, in one that it imports, or the only one."""
        classes = [cls for cls in self.classes if cls.name == last_name(call)]
        tree = script.values.inside(call, ast.Module)
        near = [cls for cls in classes if self.trees[cls.path] is tree]
        near += [cls for path in script.files for cls in classes if cls.path == path]
        return near[0] if near else classes[0] if len(classes) == 1 else None

    def also_called(self, script: Script, cls: FoundClass) -> list[str]:
        """The text of a script's calls of what an object of the class does besides computing outputs or samples."""
        created = [call for call in script.calls if last_name(call) == cls.name and self.class_of(script, call) is cls]
        variables = {script.values.assigned(call).rpartition(".")[2] for call in created} - {""}
        is_model = cls in self.models
        names = {name for name in cls.methods if not name.startswith("_")} - {"forward"}
        return script.also_called(
            variables | (set() if is_model else {"dataset"}),
            names | ({"apply", "load_state_dict"} if is_model else set()),
        )

    def _note_uses(self, path: Path) -> Script:
        """Count the calls of each class, and note the arguments that a training script passes."""
        script = Script(path, {file: self.trees[file] for file in self.imports.reached(path)})
        models = {cls.node for cls in self.models}
        optimized = {optimizer.subject for optimizer in script.optimizers}
        for call in script.calls:
            if (cls := self.class_of(script, call)) is None or ast.unparse(call.func).startswith("super"):
                continue
            if script.values.inside(call, ast.ClassDef) in models:
                cls.uses = cls.uses or -1
                continue
            cls.uses = max(cls.uses, 0) + 1
            cls.is_optimized |= bool(script.values.assigned(call)) and script.values.assigned(call) in optimized
            for name, expression in script.values.passed(call, cls.arguments).items():
                try:
                    value = script.values.value(expression)
                except Computed:
                    cls.computed.setdefault(name, expression)
                    continue
                if value is not None:
                    cls.given.setdefault(name, value)
                elif name in cls.required:
                    cls.computed.setdefault(name, expression)
        return script


def explore(folder: Path) -> Repository:
    """Parse the Python files below a folder, at most MOST_FILES."""
    trees: dict[Path, ast.Module] = {}
    unread: dict[Path, str] = {}
    for path in _files(folder):
        try:
            trees[path] = _parsed(read_text(path, most=MOST_BYTES))
        except SyntaxError as error:
            unread[path] = f"line {error.lineno}: {error.msg}"
        except (OSError, ConfigurationError, ValueError, RecursionError, MemoryError):
            unread[path] = "cannot be read"
    classes = [cls for path, tree in trees.items() for cls in _classes(path, tree)]
    by_name = {cls.name: cls for cls in classes}
    models = [cls for cls in classes if _descends(cls, MODELS, by_name) and not _calls(cls.node, {"backward"})]
    data_sets = [
        cls
        for cls in classes
        if cls not in models
        and (_descends(cls, DATA_SETS, by_name) or {"__len__", "__getitem__"} <= cls.methods.keys())
    ]
    configs = [cls for cls in classes if cls.fields]
    imports = Imports(folder, trees)
    scripts = _scripts(trees, imports)
    repository = Repository(folder, trees, unread, imports, classes, models, data_sets, configs, scripts)
    repository.read(*scripts)
    return repository


def _parsed(text: str) -> ast.Module:
    """The syntax tree, also of code from before Python 3.7, in which async was an argument. Raises SyntaxError."""
    try:
        return ast.parse(text)
    except SyntaxError:
        return ast.parse(re.sub(r"\basync(?=\s*=)", "non_blocking", text))


def _files(folder: Path) -> Iterator[Path]:
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
            yield here / name


def _scripts(trees: dict[Path, ast.Module], imports: Imports) -> list[Path]:
    """Files that train, or else the files that import them and create the optimizer; the most likely ones first."""
    reached = {path: imports.reached(path) for path in trees if path.stem != "__init__"}
    scripts: dict[Path, None] = {}
    for path in reached:
        if _calls(trees[path], {"backward"}):
            users = [other for other in reached if other != path and path in reached[other]]
            creators = [user for user in users if "optim" in ast.unparse(trees[user])]
            has_data = "DataLoader" in ast.unparse(trees[path])
            scripts |= dict.fromkeys([*creators, *[path] * (has_data or not creators)])
    words = ("train", "main", "run")
    return sorted(scripts, key=lambda path: (len(path.parts), not any(word in path.stem for word in words), str(path)))


def _classes(path: Path, tree: ast.Module) -> Iterator[FoundClass]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            bases = {ast.unparse(base).rpartition(".")[2].partition("[")[0] for base in node.bases}
            methods = {statement.name: statement for statement in node.body if isinstance(statement, ast.FunctionDef)}
            yield FoundClass(path, node, bases, methods, is_importable=not _works_on_import(tree))


def _works_on_import(tree: ast.Module) -> bool:
    """Whether importing the file would parse a command line or train, like a script without a main guard."""
    return any(
        _calls(statement, {"parse_args", "backward"})
        for statement in tree.body
        if not isinstance(statement, (ast.ClassDef, ast.FunctionDef))
        and not (isinstance(statement, ast.If) and "__name__" in ast.unparse(statement.test))
    )


def _calls(tree: ast.AST, names: set[str]) -> bool:
    """Whether a method of one of these names is called in it."""
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return any(isinstance(function, ast.Attribute) and function.attr in names for function in calls)


def _descends(cls: FoundClass, roots: set[str], by_name: dict[str, FoundClass], seen: tuple[str, ...] = ()) -> bool:
    if cls.bases & roots:
        return True
    inner = [by_name[base] for base in cls.bases if base in by_name and base not in seen]
    return any(_descends(base, roots, by_name, (*seen, cls.name)) for base in inner)
