"""The values that a script's command line and its classes of settings have by default."""

import ast
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from manyheads.runner.commands.init.values import Values

SETTINGS = ("config", "args", "settings", "hyper", "param", "option")  # in names of classes that only hold values


def defaults(nodes: Iterable[ast.AST], values: "Values") -> dict[str, object]:
    """The defaults by name, from calls of argparse or click, and from the fields of classes."""
    arguments: dict[str, object] = {}
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in ("add_argument", "add_option", "option"):
                arguments |= _default(node, values)
            elif node.func.attr == "set_defaults":
                arguments |= {word.arg: values.plain(word.value) for word in node.keywords if word.arg}
        elif isinstance(node, ast.ClassDef) and any(word in node.name.lower() for word in SETTINGS):
            for line in node.body:
                if isinstance(line, (ast.Assign, ast.AnnAssign)) and (value := values.plain(line.value)) is not None:
                    target = line.targets[0] if isinstance(line, ast.Assign) else line.target
                    arguments.setdefault(ast.unparse(target), value)
    return arguments


def _default(call: ast.Call, values: "Values") -> dict[str, object]:
    """The default of one argument, under the name that argparse gives it."""
    words = {word.arg: word.value for word in call.keywords if word.arg}
    names = [text for text in map(values.plain, call.args) if isinstance(text, str)]
    name = next((text for text in names if text.startswith("--")), names[0] if names else "")
    name = str(values.plain(words.get("dest")) or name.lstrip("-").replace("-", "_"))
    if (action := values.plain(words.get("action"))) in ("store_true", "store_false"):
        return {name: action == "store_false"}
    if "default" not in words:
        return {name: None} if names and names[0].startswith("-") and not values.plain(words.get("required")) else {}
    with suppress(ValueError):
        value = values.value(words["default"])
        kind = {"int": int, "float": float}.get(ast.unparse(words["type"])) if "type" in words else None
        return {name: kind(value) if kind is not None and isinstance(value, str) else value}
    return {}
