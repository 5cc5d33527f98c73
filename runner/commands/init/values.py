"""What expressions of a training script are worth before it runs: nothing of it is executed."""

import ast
import operator
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from manyheads.runner.commands.init.defaults import defaults
from manyheads.runner.errors import printable

Plain = int | float | str | bool | list[object]
Function = ast.FunctionDef | ast.AsyncFunctionDef
OPERATORS: dict[type, Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}
NAMES = ("args", "opt", "opts", "options", "config", "conf", "cfg", "params", "flags", "settings", "hp")  # of settings


class Computed(ValueError):
    """An expression whose value only the running script has."""


class Values:
    """Evaluates expressions in a script and in the files that it imports.

    It knows literals, arithmetic, constants, parameters with the values that calls pass, and the defaults of argparse,
    click and classes of settings. A name that may have several values has none here. trees: the parsed files, by path.
    """

    def __init__(self, trees: Mapping[Path, ast.Module]) -> None:
        self._modules = {
            path.parent.name if path.stem == "__init__" else path.stem: tree for path, tree in trees.items()
        }
        self._nodes = [node for tree in trees.values() for node in ast.walk(tree)]
        self._parents = {child: node for node in self._nodes for child in ast.iter_child_nodes(node)}
        self._bound: dict[tuple[ast.AST, str], list[ast.expr | None]] = defaultdict(list)
        self._calls: dict[str, list[ast.Call]] = defaultdict(list)
        self._imported: dict[tuple[ast.AST, str], tuple[str, str]] = {}
        self._libraries: dict[tuple[ast.AST, str], str] = {}  # imported names and their full names
        self._pending: set[tuple[ast.AST, str]] = set()
        self.arguments: dict[str, object] = {}  # what the command line and classes of settings set by default
        self.changed: dict[str, object] = {}  # the defaults of those that the script may change
        for node in self._nodes:
            self._note(node)
        self.arguments |= defaults(self._nodes, self)
        self._correct_arguments()
        live = [node for tree in trees.values() for node in self.live(tree)]
        self._bound.clear()
        self._calls.clear()
        for node in live:
            self._note(node)

    def value(self, node: ast.AST) -> object:
        """The value of an expression: plain, None, or a list. Raises Computed."""
        try:
            return self._value(node)
        except (RecursionError, ArithmeticError, TypeError):
            raise Computed from None

    def plain(self, node: ast.AST | None) -> Plain | None:
        """The value if it is plain, otherwise None."""
        with suppress(Computed):
            value = self.value(node) if node is not None else None
            return value if isinstance(value, (int, float, str, bool, list)) else None
        return None

    def passed(self, call: ast.Call, arguments: list[str]) -> dict[str, ast.expr]:
        """The expressions that a call passes, by argument."""
        pairs = [*zip(arguments, call.args, strict=False), *((word.arg, word.value) for word in call.keywords)]
        return {name: value for name, value in pairs if name is not None and not isinstance(value, ast.Starred)}

    def live(self, tree: ast.AST) -> Iterator[ast.AST]:
        """The nodes of a tree, without the branches that the defaults don't take."""
        waiting = [tree]
        while waiting:
            node = waiting.pop()
            yield node
            children = [*ast.iter_child_nodes(node)]
            if isinstance(node, (ast.If, ast.IfExp)):
                with suppress(Computed):
                    branch = node.body if self.value(node.test) else node.orelse
                    children = [*branch] if isinstance(branch, list) else [branch]
            waiting += reversed(children)

    def inside(self, node: ast.AST, *kinds: type[ast.AST]) -> ast.AST | None:
        """The innermost node of one of these kinds around another one."""
        outer = self._parents.get(node)
        while outer is not None and not isinstance(outer, kinds):
            outer = self._parents.get(outer)
        return outer

    def assigned(self, node: ast.AST) -> str:
        """The variable that an expression is assigned to; empty if there is none."""
        statement = self.inside(node, ast.stmt)
        return ast.unparse(statement.targets[0]) if isinstance(statement, ast.Assign) else ""

    def expressions(self, name: ast.Name) -> list[ast.expr | None]:
        """What a variable is assigned in the function around it; None for what isn't one expression."""
        return self._bound.get((self._scope(name), name.id), [])

    def described(self, expression: ast.expr) -> str:
        """The text of an expression; of a setting that the script may change, also its default."""
        text = printable(ast.unparse(expression))
        name = expression.attr if isinstance(expression, ast.Attribute) and self._is_settings(expression.value) else ""
        return f"{text}, which is {printable(self.changed[name])} at first" if name in self.changed else text

    def full_name(self, function: ast.expr) -> str:
        """The full name of a function or class of a library; empty for others."""
        first, _, rest = ast.unparse(function).partition(".")
        full = self._libraries.get((self._root(function), first))
        return ".".join(filter(None, (full, rest))) if full else ""

    def _note(self, node: ast.AST) -> None:
        if isinstance(node, ast.Call):
            self._calls[ast.unparse(node.func).rpartition(".")[2]].append(node)
        elif isinstance(node, ast.ImportFrom):
            module = (node.module or "").rpartition(".")[2]
            if not node.level:
                names = {(self._root(node), a.asname or a.name): f"{node.module}.{a.name}" for a in node.names}
                self._libraries |= names
            self._imported |= {(self._scope(node), a.asname or a.name): (module, a.name) for a in node.names}
        elif isinstance(node, ast.Import):
            for a in node.names:
                self._libraries[self._root(node), a.asname or a.name.partition(".")[0]] = (
                    a.name if a.asname else a.name.partition(".")[0]
                )
            self._imported |= {
                (self._scope(node), a.asname or a.name): ("", a.name.rpartition(".")[2]) for a in node.names
            }
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            parent = self._parents[node]
            is_simple = isinstance(parent, (ast.Assign, ast.AnnAssign))
            self._bound[self._scope(node), node.id].append(parent.value if is_simple else None)  # type: ignore[attr-defined]
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            parent, owner = self._parents[node], ast.unparse(node.value)
            holder = self.inside(node, ast.ClassDef) if owner == "self" else None
            value = parent.value if isinstance(parent, ast.Assign) else None
            self._bound[holder or self._root(node), f".{node.attr}"].append(value)

    def _correct_arguments(self) -> None:
        """Drop arguments that the script may change; keep attributes that it sets once, and certainly."""
        for (scope, name), values in self._bound.items():
            if isinstance(scope, ast.Module) and name.startswith("."):
                default = self.arguments.pop(name[1:], None)
                is_certain = default is None or self._is_certain(values[0])
                value = self.plain(values[0]) if len(values) == 1 and is_certain else None
                self.changed |= {} if default is None else {name[1:]: default}
                self.arguments |= {} if value is None else {name[1:]: value}

    def _is_certain(self, value: ast.expr | None) -> bool:
        """Whether what is assigned is assigned in no branch and no loop."""
        statement = self.inside(value, ast.stmt) if value is not None else None
        return statement is not None and isinstance(self._parents[statement], (ast.Module, Function))

    def _value(self, node: ast.AST) -> object:
        match node:
            case ast.Constant(value=int() | float() | str() | bool() | None as value):
                return value
            case ast.Tuple(elts=items) | ast.List(elts=items):
                return [self._value(item) for item in items]
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self._number(operand)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return not self._value(operand)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
                return OPERATORS[type(op)](self._number(left), self._number(right))
            case ast.Compare(left=left, ops=[ast.Eq() | ast.Is()], comparators=[right]):
                return self._value(left) == self._value(right)
            case ast.Compare(left=left, ops=[ast.NotEq() | ast.IsNot()], comparators=[right]):
                return self._value(left) != self._value(right)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self._value(body if self._value(test) else orelse)
            case ast.Name(id=name):
                return self._named(name, self._scope(node))
            case ast.Attribute():
                return self._attribute(node)
        raise Computed

    def _number(self, node: ast.AST) -> float:
        value = self._value(node)
        if not isinstance(value, (int, float)):
            raise Computed
        return value

    def _named(self, name: str, scope: ast.AST | None) -> object:
        if scope is None or (scope, name) in self._pending:
            raise Computed
        self._pending.add((scope, name))
        try:
            values = self._bound.get((scope, name), [])
            if isinstance(scope, Function) and name in _parameters(scope) and not values:
                return self._parameter(scope, name)
            if values:
                return self._only(values)
            if (scope, name) in self._imported:
                module, original = self._imported[scope, name]
                return self._named(original, self._modules.get(module))
            return self._named(name, self._scope(scope) if not isinstance(scope, ast.Module) else None)
        finally:
            self._pending.discard((scope, name))

    def _attribute(self, node: ast.Attribute) -> object:
        if isinstance(node.value, ast.Name):
            _, module = self._imported.get((self._root(node), node.value.id), ("", ""))
            if module in self._modules:
                return self._named(node.attr, self._modules[module])
            holder = self.inside(node, ast.ClassDef)
            if node.value.id == "self" and holder is not None and (holder, f".{node.attr}") in self._bound:
                return self._only(self._bound[holder, f".{node.attr}"])
        if node.attr in self.arguments and self._is_settings(node.value):
            return self.arguments[node.attr]
        raise Computed

    def _is_settings(self, owner: ast.expr) -> bool:
        """Whether an object holds the command line's values, or those of a class of settings."""
        name = ast.unparse(owner).rpartition(".")[2].lower()
        sources = self.expressions(owner) if isinstance(owner, ast.Name) else []
        calls = [ast.unparse(one.func).lower() for one in sources if isinstance(one, ast.Call)]
        return name in NAMES or any(text.endswith((*NAMES, "parse")) for text in (name, *calls))

    def _only(self, values: list[ast.expr | None]) -> object:
        if len(values) != 1 or values[0] is None:
            raise Computed
        return self._value(values[0])

    def _parameter(self, function: Function, name: str) -> object:
        """What all calls pass, or its default."""
        holder = self.inside(function, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        is_constructor = function.name == "__init__" and isinstance(holder, ast.ClassDef)
        calls = self._calls[holder.name if is_constructor else function.name]  # type: ignore[union-attr]
        names = [*_parameters(function)][isinstance(holder, ast.ClassDef) :]
        passed = [self.passed(call, names).get(name, _parameters(function)[name]) for call in calls]
        values = [self._only([expression]) for expression in passed or [_parameters(function)[name]]]
        if any(value != values[0] for value in values):
            raise Computed
        return values[0]

    def _scope(self, node: ast.AST) -> ast.AST:
        return self.inside(node, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module) or node

    def _root(self, node: ast.AST) -> ast.AST:
        return self.inside(node, ast.Module) or node


def _parameters(function: Function) -> dict[str, ast.expr | None]:
    """The parameters of a function, with their defaults."""
    positional = [*function.args.posonlyargs, *function.args.args]
    defaults = [*[None] * (len(positional) - len(function.args.defaults)), *function.args.defaults]
    keywords = zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
    pairs = [*zip(positional, defaults, strict=True), *keywords]
    return {parameter.arg: default for parameter, default in pairs}
