"""The page of the private code of other libraries that is used, from the list that a test compares with the code."""

import yaml

from tests.house.private_code import LIST


def reference() -> str:
    """The page, in Markdown."""
    parts = ["# Private code of other libraries", "Used because nothing public does the same."]
    for library in yaml.safe_load(LIST.read_text()):
        rows = (f"| `{'`, `'.join(names)}` | {purpose} |" for purpose, names in library["used"].items())
        table = "\n".join(["| name | what for |", "|---|---|", *rows])
        parts += [f"## {library['library']}", f"Tried: {library['tried']}.", table]
    return "\n\n".join(parts) + "\n"
