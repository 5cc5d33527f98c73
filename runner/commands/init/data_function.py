"""Writes ``data(split)``, for a class without the argument ``split``, and for data of torchvision in a script."""

import ast
import os.path
from pathlib import Path

from manyheads.runner.commands.init.found_class import FoundClass
from manyheads.runner.commands.init.script import Script, last_name
from manyheads.runner.commands.init.values import Computed, Values

KNOWN = ("MNIST", "FashionMNIST", "KMNIST", "CIFAR10", "CIFAR100")  # have an argument train
ARGUMENTS = ["root", "train", "transform", "target_transform", "download"]  # of these
MODULE = "torchvision.datasets."
TODO = "# TODO: give each split its own samples; it is train, val or test"


def of_class(samples: FoundClass, folder: Path) -> str:
    """A file with a function that has the argument ``split``, for a data set whose class does not have it."""
    module = ".".join(samples.path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")
    head = f"from {module} import {samples.name}\n\n\ndef data(split, **options):"
    if "train" in samples.arguments:
        body = '    if split not in ("train", "val"):\n        raise ValueError(split)\n'
        return f'{head}\n{body}    return {samples.name}(**options, train=split == "train")\n'
    return f"{head}  {TODO}\n    return {samples.name}(**options)\n"


def torchvision_names(script: Script) -> list[str]:
    """The names of the data sets of torchvision that a script creates."""
    return sorted({last_name(call) for call in _calls(script)})


def of_torchvision(script: Script, folder: Path) -> str | None:
    """A file with a function ``data(split)``, if the script creates one of the known data sets from what can be read.

    folder: the repository.
    """
    if len(created := torchvision_names(script)) != 1 or created[0] not in KNOWN:
        return None
    source = _Source(script, folder)
    try:
        passed = [source.passed(call) for call in _calls(script)]
        train = next((given for given in passed if source.is_train(given)), passed[0])
        val = next((given for given in passed if not source.is_train(given)), train)
        texts = [f"{MODULE}{created[0]}({source.arguments(given)}, train=" for given in (train, val)]
    except (Computed, RecursionError):
        return None
    imports = "".join(f"import {module}\n" for module in sorted({*source.modules, MODULE.rstrip(".")}))
    body = f'    if split == "train":\n        return {texts[0]}True)\n'
    body += '    if split != "val":\n        raise ValueError(split)\n'
    return f"{imports}\n\ndef data(split):\n{body}    return {texts[1]}False)\n"


def _calls(script: Script) -> list[ast.Call]:
    return [call for call in script.calls if script.values.full_name(call.func).startswith(MODULE)]


class _Source:
    """Writes expressions of a script so that they can stand elsewhere. ``modules``: those that they need."""

    def __init__(self, script: Script, folder: Path) -> None:
        self._values: Values = script.values
        self._script_folder, self._folder = script.path.parent, folder
        self.modules: set[str] = set()

    def passed(self, call: ast.Call) -> dict[str, ast.expr]:
        """The expressions that a call passes, by argument. Raises Computed if some are starred."""
        passed = self._values.passed(call, ARGUMENTS)
        if len(passed) < len(call.args) + len(call.keywords):
            raise Computed
        return passed

    def is_train(self, passed: dict[str, ast.expr]) -> bool:
        """Whether a call creates the training samples, as it does by default."""
        return self._values.plain(passed.get("train")) is not False

    def arguments(self, passed: dict[str, ast.expr]) -> str:
        """All arguments but ``train``. Raises Computed."""
        texts = {name: self._text(value) for name, value in passed.items() if name != "train"}
        root = self._values.plain(passed.get("root"))
        if isinstance(root, str) and root.startswith(".."):  # the script is started in its own folder
            texts["root"] = repr(os.path.relpath(self._script_folder / root, self._folder))
        return ", ".join(f"{name}={text}" for name, text in texts.items())

    def _text(self, node: ast.expr) -> str:
        if isinstance(node, ast.Call):
            words = [(f"{word.arg}=" if word.arg else "**", word.value) for word in node.keywords]
            texts = [before + self._text(value) for before, value in [*(("", one) for one in node.args), *words]]
            return f"{self._text(node.func)}({', '.join(texts)})"
        if isinstance(node, (ast.List, ast.Tuple)):
            return f"[{', '.join(map(self._text, node.elts))}]"
        sources = self._values.expressions(node) if isinstance(node, ast.Name) else []
        if not sources and (full := self._values.full_name(node)):
            return self._library(full)
        if len(sources) == 1 and isinstance(sources[0], ast.Call):
            return self._text(sources[0])
        return repr(self._values.value(node))

    def _library(self, full: str) -> str:
        """A name of a library, which is imported; files beside the script are not libraries. Raises Computed."""
        *parts, _ = full.split(".")
        top = parts[0] if parts else full
        beside = [folder / name for folder in (self._script_folder, self._folder) for name in (top, f"{top}.py")]
        if not parts or any(path.exists() for path in beside):
            raise Computed
        module = [
            part for number, part in enumerate(parts) if not any(one[:1].isupper() for one in parts[: number + 1])
        ]
        self.modules.add(".".join(module))
        return full
