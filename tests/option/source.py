"""What the modules of this project import of each other, found by reading them."""

import ast
from collections.abc import Iterator
from functools import cache

from tests.conftest import ROOT


@cache
def imports() -> tuple[tuple[str, str], ...]:
    """Each module with each module, or name in one, that it imports, anywhere in it."""
    return tuple(_found())


def _found() -> Iterator[tuple[str, str]]:
    for folder in ("runner", "launchers"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            module = ".".join(("manyheads", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ImportFrom) and node.module:
                    yield from ((module, f"{node.module}.{each.name}") for each in node.names)
                elif isinstance(node, ast.Import):
                    yield from ((module, each.name) for each in node.names)
