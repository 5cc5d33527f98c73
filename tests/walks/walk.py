"""Follows a value through the source: to whom a function hands it, and to whom they do."""

import ast
import pathlib
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import yaml

from tests.walks.source import ROOT, Function, Layers, Source, module_of

COPIES = {"dict", "copy.deepcopy", "deepcopy", "OmegaConf.to_container", "OmegaConf.create", "cast", "copy"}
CONFIGS = {"dict[str, Any]", "Section", "Config", "DictConfig", "RunConfig"}  # between which a pass translates
SAME = {"written", "section"}  # attributes of a run config, and of an option, that are the same in another form
SECTIONS = {"trainer", "data", "model", "parallel"}  # of an object that has these fields it is the run config
OTHERS_HAVE = {name for kind in (dict, list, str, set, bytes, pathlib.Path, subprocess.Popen) for name in dir(kind)}


class Taken(NamedTuple):
    """A parameter of a function, or an attribute of ``self``, that holds the value (depth 0) or a section (1)."""

    function: str
    parameter: str
    depth: int


class Walk:
    """From one parameter to all stays; ``handed``: by which stay each was reached."""

    def __init__(self, source: Source, start: str):
        self.source = source
        file, function, parameter = start.split(":")
        module = ".".join(("manyheads", *Path(file).with_suffix("").parts))
        self.start = Taken(f"{module}.{function}", parameter, 0)
        assert self.start.function in source.functions, f"there is no {start}"
        self.handed: list[tuple[Taken, Taken]] = []
        seen, todo = {self.start}, [self.start]
        while todo:
            here = todo.pop()
            for there in dict.fromkeys(self._from(here)):
                self.handed.append((here, there))
                if there not in seen:
                    seen.add(there)
                    todo.append(there)
        self.seen = seen

    @property
    def stays(self) -> set[tuple[str, str]]:
        return {(each.function, each.parameter) for each in self.seen if each != self.start}

    @property
    def opened(self) -> set[str]:
        """The files in which the whole config is handed on, without options, of which a run has one per group."""
        known = ((each.function, self._file(each.function)) for each in self.seen if each.depth == 0)
        return {str(file) for function, file in known if not self._is_of_option(function)}

    def _is_of_option(self, function: str) -> bool:
        owner = function.rpartition(".")[0]
        bases = {name.rpartition(".")[2] for name in self.source.lineage(owner)} - {owner.rpartition(".")[2]}
        return "Option" in bases

    @property
    def rooms(self) -> set[str]:
        return {str(self._file(function).parent) for function, _ in self.stays}

    def climbs(self, layers: "Layers") -> set[tuple[str, str]]:
        steps = ((here.function, there.function) for here, there in self.handed)
        return {(here, there) for here, there in steps if layers.height(there) > layers.height(here)}

    def _file(self, function: str) -> Path:
        if function in self.source.functions:
            return self.source.functions[function].file
        return self.source.places[function]

    def _from(self, here: Taken) -> Iterator[Taken]:
        function = self.source.functions.get(here.function)
        if function is None:  # a class without __init__ of its own, which keeps it in a field
            yield from self._readers(here.function, here.parameter, here.depth)
            return
        reading = Reading(self.source, function, {here.parameter: here.depth})
        yield from reading.handed
        if function.owner:
            for attribute, depth in reading.kept.items():
                yield from self._readers(function.owner, attribute, depth)

    def _readers(self, owner: str, attribute: str, depth: int) -> Iterator[Taken]:
        """The methods of the class that read ``self.<attribute>``, and what they hand it to."""
        for function in self.source.functions.values():
            if function.owner == owner:
                reading = Reading(self.source, function, {f"self.{attribute}": depth})
                if reading.is_read:
                    yield Taken(function.name, f"self.{attribute}", depth)
                    yield from reading.handed


class Reading(ast.NodeVisitor):
    """What one function does with a value that it holds under a name."""

    def __init__(self, source: Source, function: Function, held: dict[str, int]):
        self.source, self.function, self.held = source, function, dict(held)
        self.names = source.names[module_of(source, function)]
        self.handed: list[Taken] = []
        self.kept: dict[str, int] = {}  # attributes of self
        self.is_read = False
        for node in function.node.body:
            self.visit(node)

    def depth(self, node: ast.AST) -> int | None:
        """0 for the value, 1 for a section, None for anything else."""
        if isinstance(node, ast.Name):
            return self.held.get(node.id)
        if isinstance(node, ast.Attribute) and (found := self.held.get(ast.unparse(node))) is not None:
            self.is_read = True
            return found
        if isinstance(node, ast.Starred | ast.NamedExpr):
            return self.depth(node.value)
        if isinstance(node, ast.Dict):  # {**config, ...}
            return self._least(node.values)
        if isinstance(node, ast.BoolOp):
            return self._least(node.values)
        if isinstance(node, ast.IfExp):
            return self._least([node.body, node.orelse])
        if isinstance(node, ast.BinOp):  # config | {...}
            return self._least([node.left, node.right])
        if isinstance(node, ast.Call) and not _is_get(node):
            return self._depth_of_result(node)
        above, key = self._above(node)
        if key in SAME:
            return above
        return above + 1 if above == 0 and key not in SCALARS else None

    def _above(self, node: ast.AST) -> tuple[int | None, str]:
        """The depth of what the expression is taken from, and the key."""
        if isinstance(node, ast.Subscript):
            return self.depth(node.value), getattr(node.slice, "value", "")
        if isinstance(node, ast.Attribute):
            return self.depth(node.value), node.attr
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            return self.depth(node.func.value), getattr(node.args[0], "value", "")
        return None, ""

    def _least(self, several: Iterable[ast.expr]) -> int | None:
        return min((depth for each in several if (depth := self.depth(each)) is not None), default=None)

    def _depth_of_result(self, node: ast.Call) -> int | None:
        """Of a copy, of a pass from config to config, and of an object that is built from a whole config."""
        least = self._least([*node.args, *(each.value for each in node.keywords)])
        if least != 0 or ast.unparse(node.func) in COPIES:
            return least if ast.unparse(node.func) in COPIES else None
        for function, _ in self._called(node.func):
            owner = function if isinstance(function, str) else function.owner
            if owner and {*self.source.fields.get(owner, [])} >= SECTIONS:
                return 0
            if isinstance(function, Function) and (returned := function.node.returns):
                taken = [each.annotation for each in function.node.args.args if each.annotation]
                if ast.unparse(returned) in CONFIGS and CONFIGS & {*map(ast.unparse, taken)}:
                    return 0
        return None

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        for target in node.targets:
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts, strict=False))
            for name, value in pairs:
                if (depth := self.depth(value)) is not None:
                    self._hold(name, depth)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.generic_visit(node)
        if (depth := self.depth(node.value)) is not None:
            self._hold(node.target, depth)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self.is_read = self.is_read or (isinstance(node.ctx, ast.Load) and ast.unparse(node) in self.held)
        self.generic_visit(node)

    def _hold(self, target: ast.expr, depth: int) -> None:
        if isinstance(target, ast.Name):
            self.held[target.id] = depth
        elif isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self":
            self.kept[target.attr] = depth
            self.held[f"self.{target.attr}"] = depth

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        called, arguments = node.func, list(node.args)
        if isinstance(called, ast.Name) and called.id == "partial" and arguments:
            called, arguments = arguments[0], arguments[1:]
        given = [(place, depth) for place, each in enumerate(arguments) if (depth := self.depth(each)) is not None]
        named = [
            (each.arg, depth) for each in node.keywords if each.arg and (depth := self.depth(each.value)) is not None
        ]
        if not given and not named:
            return
        for function, first in self._called(called):
            is_class = isinstance(function, str)
            parameters = (self.source.fields[function] if is_class else function.parameters)[first:]
            name = function if is_class else function.name
            self.handed += [Taken(name, parameters[place], depth) for place, depth in given if place < len(parameters)]
            self.handed += [Taken(name, key, depth) for key, depth in named if key in parameters]

    def _called(self, node: ast.expr) -> Iterator[tuple[Function | str, int]]:
        """The functions, or classes without a constructor, that a call may reach; how many parameters are bound."""
        if isinstance(node, ast.BoolOp | ast.IfExp):
            for each in node.values if isinstance(node, ast.BoolOp) else [node.body, node.orelse]:
                yield from self._called(each)
        elif isinstance(node, ast.Attribute):
            yield from self._method(node)
        elif isinstance(node, ast.Name):
            yield from self._named(self.names.get(node.id, ""))
        elif isinstance(node, ast.Call):
            yield from self._named(self._loaded(node))

    def _loaded(self, node: ast.expr) -> str:
        """The dotted name of what ``load`` gets as a literal, of which the beginning may be a constant; else empty."""
        if not (isinstance(node, ast.Call) and ast.unparse(node.func) == "load"):
            return ""
        parts = node.args[0].values if isinstance(node.args[0], ast.JoinedStr) else node.args
        end = "".join(part.value for part in parts if isinstance(part, ast.Constant))
        return next((name for name in (*self.source.functions, *self.source.classes) if name.endswith(end)), "")

    def _method(self, node: ast.Attribute) -> Iterator[tuple[Function | str, int]]:
        inner = ast.unparse(node.value)
        whole = self.names.get(inner, "")
        owner = self.function.owner if inner in ("self", "cls", "super()") else whole or self._loaded(node.value)
        if owner in self.source.classes:
            found = self.source.method(owner, node.attr)
            yield from [(found, 0 if found.is_static else 1)] if found else []
        elif whole in self.source.names:
            yield from self._named(f"{whole}.{node.attr}")
        elif not whole and node.attr not in OTHERS_HAVE:
            yield from ((each, 1) for each in self.source.methods.get(node.attr, []))

    def _named(self, name: str) -> Iterator[tuple[Function | str, int]]:
        if name in self.source.functions:
            yield self.source.functions[name], 0
        elif name in self.source.classes:
            constructor = self.source.method(name, "__init__")
            yield (constructor, 1) if constructor else (name, 0)


def _is_get(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Attribute) and node.func.attr == "get" and bool(node.args)


def scalars(root: Path) -> set[str]:
    """The keys of the run config that are values, not sections, and what it computes from several."""
    config = yaml.safe_load((root / "conf/config.yaml").read_text())
    module = ast.parse((root / "runner/option/run_config.py").read_text())
    (typed,) = (node for node in module.body if isinstance(node, ast.ClassDef) and node.name == "RunConfig")
    functions = (node for node in typed.body if isinstance(node, ast.FunctionDef) and node.returns)
    computed = {node.name for node in functions if ast.unparse(node.returns or node) in ("bool", "int")}
    return {key for key, value in config.items() if not isinstance(value, dict)} - {"defaults"} | computed


SCALARS = scalars(ROOT)
