"""What a column holds: numbers, booleans, dates or categories; inferred from its texts, which become numbers here."""

import shlex
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow
from pyarrow import compute

from manyheads.runner.data.table.option import BOOLEAN, CATEGORY, DATE, IGNORED, NUMBER
from manyheads.runner.errors import ConfigurationError, printable
from manyheads.runner.wording import counted

DIGITS = r"^-?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?$"
WHOLE = r"^-?\d+$"
CODE = r"^0\d+$"  # which would lose its zeros as a number
DAY = r"^\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}(:\d{2}(\.\d+)?)?Z?)?$"
COMMA = r"^-?\d*,\d+$"
DECIMAL_COMMA = "\"data.decimal=','\""  # as it can be typed in a shell
PAIRS = ({"true", "false"}, {"yes", "no"}, {"t", "f"}, {"y", "n"})
TRUE = ("true", "yes", "t", "y", "1")
MOST_EXCEPTIONS = 0.2  # fraction of a column's values that may be no numbers for it to seem a column of numbers
SECONDS_OF_A_DAY = 86_400


def kind_of(column: pyarrow.ChunkedArray, *, name: str, is_text: bool, where: Callable[[int], str]) -> str:
    """The kind of a column. ``is_text``: its file says that it holds texts; ``where``: a row in words.

    Raises ConfigurationError for a column without values, and for one that mixes numbers with a few texts.
    """
    values = column.drop_null()
    if not len(values):
        raise ConfigurationError(
            f"the column {printable(name)} has no value in any row. Set {setting(name, IGNORED)}.",
            key=f"data.columns.{name}",
        )
    numbers = _matching(values, DIGITS)
    if numbers and not is_text and not _matching(values, CODE):
        if numbers == len(values):
            return NUMBER
        if numbers >= (1 - MOST_EXCEPTIONS) * len(values):
            raise _mixed(column, name, len(values) - numbers, where)

    few = values.slice(0, 1000).unique()
    if len(few) <= 2 and any({*compute.utf8_lower(values.unique()).to_pylist()} <= pair for pair in PAIRS):
        return BOOLEAN
    return DATE if _matching(values, DAY) == len(values) else CATEGORY


def numbers_in(column: pyarrow.ChunkedArray, kind: str, *, name: str, where: Callable[[int], str]) -> np.ndarray:
    """The column's values as numbers, (N,) float64, NaN where there is none; dates in days since 1970.

    ``kind``: number, boolean, date, or date with a format of strptime. Raises ConfigurationError for other values.
    """
    if kind == NUMBER:
        _refuse_others(column, _is(column, DIGITS), name, kind, where)
        parsed = column.cast(pyarrow.float64())
    elif kind == BOOLEAN:
        lower = compute.utf8_lower(column)
        allowed = pyarrow.array([*set().union(*PAIRS), "0", "1"])
        _refuse_others(column, compute.is_in(lower, allowed), name, kind, where)
        is_true = compute.is_in(lower, pyarrow.array(TRUE)).cast(pyarrow.float64())
        parsed = compute.if_else(column.is_null(), pyarrow.scalar(None, pyarrow.float64()), is_true)
    else:
        times = _times(column, kind)
        _refuse_others(column, times.is_valid(), name, kind, where)
        parsed = compute.divide(times.cast(pyarrow.int64()).cast(pyarrow.float64()), float(SECONDS_OF_A_DAY))
    return parsed.to_numpy().astype("float64")


def _times(column: pyarrow.ChunkedArray, kind: str) -> pyarrow.ChunkedArray:
    """The column as seconds since 1970; null for what is no date."""
    if form := kind.removeprefix(DATE).strip():
        return compute.strptime(column, format=form, unit="s", error_is_null=True)
    days, clocks = (compute.replace_substring_regex(column, *how) for how in ((r"[ T].*$", ""), (r"^[^ T]*[ T]?", "")))
    times = compute.replace_substring_regex(clocks, r"(\.\d+)?Z?$", "")
    full = compute.if_else(
        compute.equal(compute.utf8_length(times), 5), compute.binary_join_element_wise(times, "00", ":"), times
    )
    clock = compute.if_else(compute.equal(times, ""), "00:00:00", full)
    dated = compute.if_else(
        _is(column, DAY), compute.binary_join_element_wise(days, clock, " "), pyarrow.scalar(None, pyarrow.string())
    )
    return compute.strptime(dated, format="%Y-%m-%d %H:%M:%S", unit="s", error_is_null=True)


def is_whole(column: pyarrow.ChunkedArray) -> bool:
    """Whether all values are whole numbers."""
    return _matching(column.drop_null(), WHOLE) == len(column) - column.null_count


def setting(name: str, kind: str) -> str:
    """The override that sets a column's kind, as it can be typed in a shell."""
    if name.isidentifier():
        typed = f"data.columns.{name}={kind}"
        return shlex.quote(typed) if " " in kind else typed
    return shlex.quote(f"data.columns={{{name}: {kind}}}")


def have_decimal_comma(values: pyarrow.ChunkedArray) -> bool:
    """Whether most of these values are numbers with a decimal comma, such as 3,14."""
    return 2 * _matching(values, COMMA) > len(values)


def _is(column: Any, pattern: str) -> Any:
    return compute.match_substring_regex(column, pattern)


def _matching(values: Any, pattern: str) -> int:
    return int(compute.sum(_is(values, pattern)).as_py() or 0)


def _refuse_others(column: Any, fits: Any, name: str, kind: str, where: Callable[[int], str]) -> None:
    """Raises ConfigurationError for the first value that does not fit its column's kind."""
    wrong = compute.and_(column.is_valid(), compute.invert(compute.fill_null(fits, False)))
    if (row := compute.index(wrong, True).as_py()) < 0:
        return
    count, value = compute.sum(wrong).as_py(), column[row].as_py()
    what = f"the column {printable(name)} is a {kind}, and {printable(value)} in {where(row)} is not"
    if have_decimal_comma(column.filter(wrong)) and kind == NUMBER:
        remedy = f"({counted(count, 'such value')}). Correct it; if it has a decimal comma, set {DECIMAL_COMMA}"
    elif count > 1 and count == len(column) - column.null_count:
        remedy = f"nor is any other of {count:,} values. Correct them; or set {_instead(name, kind)}"
    else:
        remedy = (
            f"({counted(count, 'such value')}). Correct it; if it stands for a missing value, set "
            f"'data.missing=[{value}]'; or set {setting(name, CATEGORY)}"
        )
    raise ConfigurationError(f"{what}{', ' if remedy.startswith('nor') else ' '}{remedy}.", key=f"data.columns.{name}")


def _instead(name: str, kind: str) -> str:
    """The setting that is probably wrong if no value of a column is of its kind."""
    if kind.startswith(DATE):
        form = "%Y-%m-%d" if "%d.%m" in kind else "%d.%m.%Y"
        return f"their format, such as {setting(name, f'{DATE} {form}')}"
    is_target = ", and task=classification if it is the target" if kind == NUMBER else ""
    return f"{setting(name, CATEGORY)}{is_target}"


def _mixed(column: Any, name: str, count: int, where: Callable[[int], str]) -> ConfigurationError:
    row = compute.index(_is(column, DIGITS), False).as_py()
    value = column[row].as_py()
    comma = f" If it is a number, set {DECIMAL_COMMA}." if "," in value else ""
    return ConfigurationError(
        f"the column {printable(name)} holds numbers, and {counted(count, 'other value')}: {printable(value)} in "
        f"{where(row)}.{comma} If it stands for a missing value, set 'data.missing=[{value}]'; if the numbers are "
        f"codes, set {setting(name, CATEGORY)}.",
        key=f"data.columns.{name}",
    )
