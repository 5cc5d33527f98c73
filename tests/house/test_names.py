"""Names say what a thing is: locals are nouns, and a class's name stands once."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache

from tests.house.imports import ROOT, modules

EMPTY = frozenset({"found", "each", "own", "known", "place", "whole", "said", "made"})
Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def trees() -> dict[str, ast.Module]:
    """The parsed modules of the product, by file."""
    files = [file for file in modules().values() if not file.startswith("tests/")]
    return {file: ast.parse((ROOT / file).read_text()) for file in files}


def names(node: ast.AST) -> Iterator[str]:
    """What a function binds: parameters, locals, variables of comprehensions; not those of functions in it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function | ast.ClassDef):
            continue
        match child:
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.ExceptHandler(name=str(name)):
                yield name
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name
        yield from names(child)


def nameless() -> list[str]:
    """The functions with a local that says that something was found, not what it is."""
    return [
        f"{file}:{node.lineno} {node.name}"
        for file, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, Function) and not EMPTY.isdisjoint(names(node))
    ]


def doubled() -> dict[str, list[str]]:
    """The names that several classes have, with their files."""
    files = defaultdict(list)
    for file, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                files[node.name].append(file)
    return {name: where for name, where in files.items() if len(where) > 1}


def test_locals_say_what_they_are():
    assert len(nameless()) <= 10


def test_a_class_has_a_name_of_its_own():
    assert doubled() == {}
