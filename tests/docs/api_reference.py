"""The reference of the Python interface, from signatures, annotations and docstrings, for the site."""

import inspect
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from importlib import import_module
from typing import Annotated, Any, get_args, get_origin

import manyheads

RUNNER, LAUNCHERS = "manyheads.runner", "manyheads.launchers"
RETURNED = [  # by what ``manyheads`` exports
    f"{RUNNER}.serve.rank.trained.Trained",
    f"{RUNNER}.serve.rank.trained.Prediction",
    f"{RUNNER}.answers.scale.answer.Scaled",
]
BASES = {  # of options, by their group
    "model": [f"{RUNNER}.model.model_option.ModelOption"],
    "data": [f"{RUNNER}.data.data_option.Data", f"{RUNNER}.data.data_option.DataOption"],
    "task": [f"{RUNNER}.task.rank.task.Task"],
    "metrics": [f"{RUNNER}.metrics.metric.Metric", f"{RUNNER}.metrics.metric.Collected"],
    "callbacks": [f"{RUNNER}.callbacks.callback.Callback", f"{RUNNER}.callbacks.callback.RunContext"],
    "logger": [f"{RUNNER}.logger.logger.Logger", f"{RUNNER}.logger.tracker.Tracker"],
    "scheduler": [f"{RUNNER}.scheduler.rank.schedules.Schedule"],
    "precision": [
        f"{RUNNER}.precision.rank.precision.PrecisionPolicy",
        f"{RUNNER}.precision.precision_option.PrecisionOption",
    ],
    "parallel": [
        f"{RUNNER}.parallel.rank.parallel.Parallel",
        f"{RUNNER}.parallel.rank.tensor_layout.TensorLayout",
        f"{RUNNER}.parallel.parallel_option.ParallelOption",
    ],
    "launcher": [f"{LAUNCHERS}.launcher.Launcher", f"{LAUNCHERS}.launcher_option.LauncherOption"],
    "any group": [f"{RUNNER}.option.option.Option"],
}
HEAD = """# Python API

Generated from the code. [Your own project](your-project.md#from-python) has examples, [what you can rely
on](stability.md) says what is kept between versions, [adding an option](adding-an-option.md) which base to derive from.

## manyheads
"""


def reference() -> str:
    """The page, in Markdown."""
    parts = [HEAD]
    for name in sorted(set(manyheads.__all__) - {"__version__"}, key=lambda each: (each[0].isupper(), each)):
        parts.append(_described(f"manyheads.{name}", getattr(manyheads, name)))
    parts += [_described(path, _found(path)) for path in RETURNED]
    for group, paths in BASES.items():
        parts.append(f"## Options: {group}\n")
        for path in paths:
            parts.append(_described(path, _found(path)))
    return "\n".join(parts) + "\n"


def _found(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)


def _described(path: str, found: Any) -> str:
    """One function or class under its own heading."""
    module, _, name = path.rpartition(".")
    title = f"### {path}\n" if module == "manyheads" else f"### {name}\n\n`from {module} import {name}`\n"
    if not inspect.isclass(found):
        return f"{title}\n{_code(name, found)}\n{_text(found)}\n"
    rows = [f"| `{name}` | {_cell(meaning)} |" for name, meaning in _fields(found)]
    table = "\n".join(["| field | |", "|---|---|", *rows, ""]) if any(not row.endswith("|  |") for row in rows) else ""
    methods = [f"{_code(name, each)}\n{_text(each)}\n" for name, each in _methods(found)]
    return "\n".join([title, _text(found) + "\n", table, *methods])


def _fields(kind: type) -> Iterator[tuple[str, str]]:
    for field in fields(kind) if is_dataclass(kind) else ():
        yield field.name, str(get_args(field.type)[1]) if get_origin(field.type) is Annotated else ""


def _methods(kind: type) -> Iterator[tuple[str, Any]]:
    """The documented public methods and properties that the class itself has, in their order."""
    for name, each in vars(kind).items():
        function = each.fget if isinstance(each, property) else getattr(each, "__func__", each)
        if not name.startswith("_") and inspect.isfunction(function) and function.__doc__:
            yield name, each


def _code(name: str, each: Any) -> str:
    if isinstance(each, property):
        return f"```python\n{name}  # a property\n```\n"
    function = getattr(each, "__func__", each)
    signature = inspect.signature(function)
    plain = re.sub(r"<class '([\w.]+)'>|\b(?:[a-z_]\w*\.)+(?=[A-Z])", lambda one: one[1] or "", str(signature))
    return f"```python\n{name}{plain}\n```\n"


def _text(each: Any) -> str:
    parts = (inspect.getdoc(each) or "").replace("``", "`").split("`")  # every second one is code
    parts[::2] = [part.replace("<", "&lt;").replace("*", "\\*") for part in parts[::2]]
    return "`".join(parts)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
