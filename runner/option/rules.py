"""The allowed values of the run config's keys, in the words that errors print, and the values worth trying."""

import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from manyheads.runner.option.run_config import RunConfig
from enum import IntEnum


class KeyKind(IntEnum):
    """Declared by a key's rule, and None until somebody has decided it, which then counts as dangerous.

    Somebody else's config may set a number, one of some words, a text that names nothing outside the run, and objects,
    judged by their classes. ``PATH``, of data or weights that are only read: inside the folder that was received.
    ``PLACE``, any other path, address, host or command, and what downloads; and ``ANYTHING``, arguments of another
    library: only what the user types or trusts.
    """

    NUMBER = 1
    CHOICE = 2
    TEXT = 3
    OBJECT = 4
    PATH = 5
    PLACE = 6
    ANYTHING = 7


Schema = Mapping[str, Any]
FINITE = {"minimum": -sys.float_info.max, "maximum": sys.float_info.max}  # JSON Schema has no infinity


class Rule(NamedTuple):
    """The values that a key may have.

    ``allowed`` completes the sentence "Allowed: ..."; ``schema``: the same as JSON Schema, for editors; ``kind``:
    whether somebody else's config may set it.
    """

    allowed: str
    accepts: Callable[[Any], bool]
    schema: Schema
    kind: KeyKind | None = None

    def of_kind(self, kind: KeyKind) -> "Rule":
        """The same values, which are of this kind."""
        return self._replace(kind=kind)

    @property
    def values(self) -> list[Any]:
        """The allowed values if the rule lists them; otherwise empty."""
        return [*self.schema.get("enum", ())]


def is_whole(value: Any) -> bool:
    """Whether the value is an int; a bool is not."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Whether the value is an int or a float, including infinity but not NaN."""
    return is_whole(value) or (isinstance(value, float) and not math.isnan(value))


def whole(lowest: int, highest: int | None = None) -> Rule:
    """An integer between these bounds, inclusive."""
    text = f"an integer of at least {lowest}" if highest is None else f"an integer from {lowest} to {highest}"
    schema = {"type": "integer", "minimum": lowest, **({} if highest is None else {"maximum": highest})}
    return Rule(
        text, lambda v: is_whole(v) and v >= lowest and (highest is None or v <= highest), schema, KeyKind.NUMBER
    )


def number(
    *, at_least: float | None = None, above: float | None = None, below: float | None = None, infinite: bool = False
) -> Rule:
    """A number within these bounds."""
    bounds = [("of at least", at_least), ("above", above), ("below", below)]
    text = " ".join(
        ["a number", " and ".join(f"{word} {bound:g}" for word, bound in bounds if bound is not None)]
    ).strip()
    return Rule(
        text + (" or inf" if infinite else ""),
        lambda v: (
            is_number(v)
            and (infinite or math.isfinite(v))
            and (at_least is None or v >= at_least)
            and (above is None or v > above)
            and (below is None or v < below)
        ),
        {
            "type": "number",
            **({} if infinite else FINITE),
            **{
                name: bound
                for name, bound in (("minimum", at_least), ("exclusiveMinimum", above), ("exclusiveMaximum", below))
                if bound is not None
            },
        },
        KeyKind.NUMBER,
    )


def choice(*values: str) -> Rule:
    """One of these strings."""
    return Rule(", ".join(values), lambda v: v in values, {"enum": [*values]}, KeyKind.CHOICE)


def either(*rules: Rule) -> Rule:
    """Any value that one of these rules accepts, of their most dangerous kind."""
    kinds = [rule.kind for rule in rules if rule.kind is not None]
    return Rule(
        " or ".join(rule.allowed for rule in rules),
        lambda v: any(rule.accepts(v) for rule in rules),
        {"anyOf": [rule.schema for rule in rules]},
        max(kinds) if len(kinds) == len(rules) else None,
    )


def text(allowed: str, pattern: str, accepts: Callable[[Any], bool] | None = None) -> Rule:
    """A text that fully matches a regular expression. ``accepts``: the check, if an expression is not enough for it."""
    whole_text = re.compile(pattern)

    def matches(value: Any) -> bool:
        return isinstance(value, str) and whole_text.fullmatch(value) is not None

    return Rule(allowed, accepts or matches, {"type": "string", "pattern": f"^(?:{pattern})$"}, KeyKind.TEXT)


def list_of(rule: Rule) -> Rule:
    """A list whose items all satisfy one rule."""
    return Rule(
        f"a list, each {rule.allowed}",
        lambda v: isinstance(v, list) and all(map(rule.accepts, v)),
        {"type": "array", "items": rule.schema},
        rule.kind,
    )


NULL = Rule("null", lambda v: v is None, {"type": "null"}, KeyKind.CHOICE)
BOOLEAN = Rule("true or false", lambda v: isinstance(v, bool), {"type": "boolean"}, KeyKind.CHOICE)
TEXT = Rule("text", lambda v: isinstance(v, str) and v != "", {"type": "string", "minLength": 1}, KeyKind.TEXT)
PATH = TEXT.of_kind(KeyKind.PATH)
PLACE = TEXT.of_kind(KeyKind.PLACE)
INTEGER = Rule("an integer", is_whole, {"type": "integer"}, KeyKind.NUMBER)
AUTO = choice("auto")
CLASS = text("the dotted name of a class, or a class in a file, net.py:Net", r"[\s\S]*\.[\s\S]*")


def rule_for(rules: Mapping[str, Rule], key: str, default: Any) -> Rule | None:
    """The rule for a key; without one, values must have the type of the default, and a null default accepts anything.

    Null itself is allowed if it is the default.
    """
    if key in rules:
        return rules[key] if default is not None else either(rules[key], NULL)
    if key in ("_target_", "_option_"):
        return CLASS
    if isinstance(default, bool):
        return BOOLEAN
    if is_number(default):
        return number()
    if isinstance(default, str):
        return TEXT
    return None


UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_TEXT = re.compile(rf"(\d+(?:\.\d+)?)([{''.join(UNITS)}]?)")


def seconds(value: Any) -> float | None:
    """The seconds of a duration such as 90, "90" (of a flag), "90s", "1.5h" or "2d"; None for anything else."""
    if number(above=0).accepts(value):
        return float(value)
    match = _TEXT.fullmatch(value) if isinstance(value, str) else None
    return (float(match[1]) * UNITS[match[2] or "s"] or None) if match else None


DURATION = Rule(
    "seconds, or 90s, 30m, 8h, 2d",
    lambda value: seconds(value) is not None,
    {"anyOf": [number(above=0).schema, {"type": "string", "pattern": f"^(?=.*[1-9]){_TEXT.pattern}$"}]},
    KeyKind.NUMBER,
)


DATA, COMPUTE, COMMUNICATION, OPTIMIZER = "data", "compute", "communication", "optimizer"
PARTS = (DATA, COMPUTE, COMMUNICATION, OPTIMIZER)  # of an update's time
Values = Callable[["RunConfig"], "Sequence[Any] | str"]


class Tunable(NamedTuple):
    """A key that changes how updates are computed, but not their result up to rounding.

    ``part``: the part of an update's time that it changes, one of PARTS. ``values``: called with a resolved run config,
    returns the values worth trying on this machine, with or without the run's own, or a string that says why there are
    none. ``needs``: keys that have to be set along with it. ``startup``: by value, as typed, roughly how many seconds
    it adds to a first start.
    """

    part: str
    values: Values
    needs: Mapping[str, Any] = {}
    startup: Mapping[str, float] = {}


def always(*values: Any) -> Values:
    """These values, whatever the run and the machine."""
    return lambda run: values


def never(reason: str) -> Values:
    """No values: the key stays unchanged, for this reason."""
    return lambda run: reason


def powers_of_two(most: int, *, least: int = 1) -> list[int]:
    """The powers of two from ``least`` to ``most``, and ``most`` itself."""
    powers = [2**power for power in range(most.bit_length()) if least <= 2**power]
    return sorted({*powers, most}) if most >= least else []
