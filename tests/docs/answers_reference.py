"""The reference of what commands print with ``--json``, from the JSON Schemas that they publish, for the site."""

from typing import Any

from manyheads.runner.commands import names
from manyheads.runner.commands.schema import schema_of_command
from manyheads.runner.run.json_schema import Schema

HEAD = """# What --json prints

Generated from the published schemas (`schemas/<command>.json` on this site, `manyheads schema <command>`). Every
command prints one object with the keys of `Reply`; `result` has the object below.
"""


def reference() -> str:
    """The page, in Markdown."""
    schemas = {name: schema_of_command(name) for name in names()}
    envelope = schemas["train"]
    described: dict[str, Schema] = {"Problem": envelope["$defs"]["Problem"]}  # once, where it is first used
    parts = [HEAD, _table("Reply", envelope, level=2), _table("Problem", described["Problem"], level=3)]
    for name, schema in schemas.items():
        parts.append(f"## {name}\n\n`result`: {_kind(schema['properties']['result'])}\n")
        for title, each in schema["$defs"].items():
            if title not in described:
                parts.append(_table(title, each, level=3))
            elif described[title] != each:
                raise ValueError(f"{title} is the name of two different objects in answers; rename one of them.")
            described[title] = each
    return "\n".join(parts) + "\n"


def _table(title: str, schema: Schema, *, level: int) -> str:
    rows = [f"| `{key}` | {_kind(each)} | {_cell(each)} |" for key, each in schema.get("properties", {}).items()]
    about = schema.get("description", "")
    return "\n".join([f"{'#' * level} {title}\n", f"{about}\n", "| key | type | |", "|---|---|---|", *rows, ""])


def _kind(schema: Schema) -> str:
    """A type in words, with a link to the object that it is."""
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(_kind(each) for each in schema["anyOf"])
    if "enum" in schema:
        return " ".join(f"`{each}`" for each in schema["enum"])
    kind: Any = schema.get("type", "anything")
    if kind == "array":
        return f"list of {_inner(schema['items'])}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_inner(schema['additionalProperties'])}"
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


def _inner(schema: Schema) -> str:
    kind = _kind(schema)
    return f"({kind})" if " or " in kind else kind


def _cell(schema: Schema) -> str:
    return str(schema.get("description", "")).replace("|", "\\|").replace("<", "&lt;")
