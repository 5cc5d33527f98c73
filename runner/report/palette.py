"""Colours that colour-blind readers can tell apart (Okabe and Ito), one for each backend."""

from collections import Counter
from dataclasses import dataclass

from manyheads.runner.report.columns import titles
from manyheads.runner.report.comparison import Comparison
from manyheads.runner.report.rows import Row

BY_BACKEND = {
    "single": "#56646e",
    "dp": "#e69f00",
    "ddp": "#0072b2",
    "horovod": "#d55e00",
    "apex": "#009e73",
}
OTHERS = ("#cc79a7", "#56b4e9", "#8c6d1f", "#009e73", "#e69f00", "#0072b2", "#d55e00", "#56646e")
DASHES = ("solid", "dash", "dot", "dashdot")


@dataclass(frozen=True)
class Look:
    """How rows are drawn.

    ``name``, ``colour``, ``dash``: by the row's number; ``hues``, ``dashes``: what they mean. ``hue_key``: the swept
    key that the colours tell apart.
    """

    name: dict[str, str]
    colour: dict[str, str]
    dash: dict[str, str]
    hues: dict[str, str]
    dashes: dict[str, str]
    hue_key: str | None


def look(comparison: Comparison) -> Look:
    """Colours tell backends apart, or what else was swept first; dashes the rest, and recur after four."""
    rows, key = comparison.rows, _hue_key(comparison)
    hues = _colours([_hue(row, key) for row in rows])
    rests = {row.number: _rest(row, key) for row in rows}
    dashes = {rest: DASHES[index % len(DASHES)] for index, rest in enumerate(dict.fromkeys(rests.values()))}
    counts = Counter(short(row.label) for row in rows)
    return Look(
        name={r.number: short(r.label) if counts[short(r.label)] == 1 else _numbered(r) for r in rows},
        colour={row.number: hues[_hue(row, key)] for row in rows},
        dash={number: dashes[rest] for number, rest in rests.items()},
        hues=hues,
        dashes=dashes,
        hue_key=key,
    )


def short(text: str, most: int = 28) -> str:
    """The text, cut in its middle where it is longer than ``most``."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _numbered(row: Row) -> str:
    return f"{short(row.label, 20)} · {row.number[-12:]}"


def _hue_key(comparison: Comparison) -> str | None:
    return "parallel" if "parallel" in comparison.swept else next(iter(comparison.swept), None)


def _hue(row: Row, key: str | None) -> str:
    return row.values.get(key, "") if key else str(row.first.run.config.get("parallel.name", ""))


def _rest(row: Row, key: str | None) -> str:
    return rest_of(row, without=(key,))


def rest_of(row: Row, *, without: tuple[str | None, ...]) -> str:
    """A row's other swept values, with the key's name where there is one only."""
    names = titles(list(row.values))
    rest = {names[name]: value for name, value in row.values.items() if name not in without}
    return " ".join(rest.values()) if len(rest) > 1 else "".join(f"{name} {value}" for name, value in rest.items())


def _colours(values: list[str]) -> dict[str, str]:
    unknown = [value for value in dict.fromkeys(values) if value not in BY_BACKEND]
    more = {value: OTHERS[index % len(OTHERS)] for index, value in enumerate(unknown)}
    return {value: BY_BACKEND.get(value) or more[value] for value in dict.fromkeys(values)}
