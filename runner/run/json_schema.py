"""Turns dataclasses and named tuples into JSON and its JSON Schema: one declaration of an answer and its meaning.

A class's docstring describes the object, ``Annotated[float, "seconds"]`` a field.
"""

import inspect
import math
import types
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

Schema = dict[str, Any]
DIALECT = "https://json-schema.org/draft/2020-12/schema"
TEXT_ONLY = object()  # marks, in Annotated, a field that only the text for people needs
# JSON has no infinity and no NaN: such a number is null.
PLAIN: dict[Any, Schema] = {
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": ["number", "null"]},
    str: {"type": "string"},
    Path: {"type": "string"},
    type(None): {"type": "null"},
}


def to_json(value: Any) -> Any:
    """The value as ``json.dumps`` takes it; a number that is not finite becomes None."""
    if not isinstance(value, type) and _is_record(value):
        return {name: to_json(getattr(value, name)) for name in _names(value.__class__)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(element) for element in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def schema_of(kind: Any, **properties: Any) -> Schema:
    """The JSON Schema of a dataclass in ``to_json``'s form. ``properties``: types that replace those of its fields."""
    definitions: dict[str, Schema] = {}
    root = _object(kind, definitions)
    root["properties"] |= {name: _schema(annotation, definitions) for name, annotation in properties.items()}
    return {"$schema": DIALECT, **root, "$defs": definitions}


def _schema(kind: Any, definitions: dict[str, Schema]) -> Schema:
    if kind in PLAIN:
        return dict(PLAIN[kind])
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return {**_schema(arguments[0], definitions), "description": arguments[1]}
    if origin in (Union, types.UnionType):
        return _union([_schema(argument, definitions) for argument in arguments])
    if origin is Literal:
        return {"enum": [*arguments]}
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _schema(arguments[1], definitions)}
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return {"type": "array", "items": _schema(arguments[0], definitions)}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return {"enum": [member.value for member in kind]}
    if _is_record(kind):
        name = str(getattr(kind, "__name__", kind))
        if name not in definitions:
            definitions[name] = {}  # it may contain itself
            definitions[name] = _object(kind, definitions)
        return {"$ref": f"#/$defs/{name}"}
    if kind is Any:
        return {}
    raise TypeError(f"{kind} has no JSON Schema; declare fields of types that JSON has.")


def _object(kind: Any, definitions: dict[str, Schema]) -> Schema:
    hints = get_type_hints(kind, include_extras=True)
    names = _names(kind)
    return {
        "title": kind.__name__,
        "description": " ".join((inspect.getdoc(kind) or "").partition("\n\n")[0].split()),
        "type": "object",
        "properties": {name: _schema(hints[name], definitions) for name in names},
        "required": names,
    }


@cache
def _names(kind: Any) -> list[str]:
    hints = get_type_hints(kind, include_extras=True)
    return [name for name in hints if not name.startswith("_") and TEXT_ONLY not in get_args(hints[name])[1:]]


def _is_record(kind: Any) -> bool:
    """Whether it has fields with names and types: a dataclass, or a NamedTuple."""
    return is_dataclass(kind) or hasattr(kind, "_fields")


def _union(schemas: list[Schema]) -> Schema:
    """The schema of a union; plain types are merged into one list, which is easier to read."""
    if not all(schema.keys() == {"type"} for schema in schemas):
        return {"anyOf": schemas}
    listed = [schema["type"] if isinstance(schema["type"], list) else [schema["type"]] for schema in schemas]
    return {"type": [*dict.fromkeys(name for names in listed for name in names)]}
