"""A class in a repository, as it is found by reading its file."""

import ast
from dataclasses import dataclass, field
from pathlib import Path

LABELS = {"targets", "target", "labels", "label"}  # arguments of a forward that computes its own loss


@dataclass
class FoundClass:
    """A class in a repository.

    ``bases``: the names of its base classes. ``uses``: how often training scripts call it; -1 if only other models do.
    ``given``: the plain arguments that a training script passes; ``computed``: those that are not plain.
    ``is_optimized``: whether a script's optimizer gets its parameters.
    ``is_importable``: whether importing its file runs no script.
    """

    path: Path
    node: ast.ClassDef
    bases: set[str]
    methods: dict[str, ast.FunctionDef]
    uses: int = 0
    given: dict[str, object] = field(default_factory=dict)
    computed: dict[str, ast.expr] = field(default_factory=dict)
    is_optimized: bool = False
    is_importable: bool = True

    @property
    def name(self) -> str:
        """The name of the class."""
        return self.node.name

    @property
    def arguments(self) -> list[str]:
        """The constructor's arguments, without those that * and ** collect."""
        if (constructor := self.methods.get("__init__")) is not None:
            return [argument.arg for argument in (*constructor.args.args[1:], *constructor.args.kwonlyargs)]
        return [field.target.id for field in self.fields]  # type: ignore[union-attr]  # a dataclass

    @property
    def required(self) -> list[str]:
        """The constructor's arguments that have no default."""
        if (constructor := self.methods.get("__init__")) is None:
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

    def attributes_of(self, argument: str) -> set[str]:
        """The attributes of an argument that the class uses."""
        nodes = (node for node in ast.walk(self.node) if isinstance(node, ast.Attribute))
        return {node.attr for node in nodes if ast.unparse(node.value).removeprefix("self.") == argument}

    @property
    def has_own_loss(self) -> bool:
        """Whether its forward takes labels, like models that return their own loss."""
        forward = self.methods.get("forward")
        return forward is not None and bool(LABELS & {argument.arg for argument in forward.args.args})
