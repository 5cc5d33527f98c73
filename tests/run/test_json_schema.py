"""What a declaration becomes: JSON, and the schema of that JSON."""

import math
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import pytest
from jsonschema import Draft202012Validator

from manyheads.runner.run.json_schema import TEXT_ONLY, schema_of, to_json


class Colour(StrEnum):
    RED = "red"


class Pair(NamedTuple):
    """Two numbers."""

    first: int
    second: float | None


@dataclass(frozen=True)
class Tree:
    """A tree.

    What programs need not know.
    """

    name: Annotated[str, "what it is called"]
    colour: Colour
    kind: Literal["oak", "ash"]
    path: Path | None
    numbers: dict[str, float]
    pairs: tuple[Pair, ...]
    children: list["Tree"]
    anything: Any
    shown: Annotated[object, TEXT_ONLY] = None


LEAF = Tree("leaf", Colour.RED, "oak", None, {}, (), [], None)
TREE = Tree("root", Colour.RED, "ash", Path("/tmp"), {"a": math.nan}, (Pair(1, math.inf), Pair(2, None)), [LEAF], [1])


def test_json_is_of_the_schema():
    schema = schema_of(Tree)
    Draft202012Validator.check_schema(schema)
    assert [*Draft202012Validator(schema).iter_errors(to_json(TREE))] == []


def test_what_is_not_finite_is_null_and_what_only_the_text_needs_is_left_out():
    found = to_json(TREE)
    assert found["numbers"] == {"a": None}
    assert found["pairs"] == [{"first": 1, "second": None}, {"first": 2, "second": None}]
    assert "shown" not in found
    assert "shown" not in schema_of(Tree)["properties"]


def test_meanings_come_from_docstrings_and_annotations():
    schema = schema_of(Tree)
    assert schema["description"] == "A tree."
    assert schema["properties"]["name"] == {"type": "string", "description": "what it is called"}


@pytest.mark.parametrize(("key", "value"), [("name", 1), ("colour", "blue"), ("kind", "elm"), ("pairs", [[1, 2]])])
def test_what_is_wrong_is_refused(key, value):
    assert not Draft202012Validator(schema_of(Tree)).is_valid({**to_json(TREE), key: value})


def test_a_type_that_json_lacks_is_refused():
    @dataclass(frozen=True)
    class Odd:
        """Odd."""

        values: set

    with pytest.raises(TypeError, match="has no JSON Schema"):
        schema_of(Odd)
