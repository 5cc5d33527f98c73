"""The rows about a table in the run's header: its columns, filled values, and columns that the user should check."""

import re
from typing import TYPE_CHECKING

import numpy as np
import pyarrow
from pyarrow import compute

from manyheads.runner.data.partition import ALL
from manyheads.runner.data.table.encoding import Encoding, listed
from manyheads.runner.data.table.files import TextColumns
from manyheads.runner.data.table.kinds import is_whole, setting
from manyheads.runner.data.table.option import CATEGORY, IGNORED, NUMBER
from manyheads.runner.data.table.rows import DRAWN
from manyheads.runner.errors import printable
from manyheads.runner.wording import counted

if TYPE_CHECKING:
    from manyheads.runner.data.table.table import Table


FEWEST_ROWS = 20  # with fewer, chance alone would say much
MOST_CODES = 20  # whole numbers of a column that may be codes of categories
ALL_BUT = 0.999  # of the target that a column explains alone
BINS = 32
ID = re.compile(r"(^|[_\W])(id|uuid|guid|key|index|unnamed)($|[_\W\d])|[a-z](ID|Id)$|^column_\d+$", re.ASCII)


def facts_of(table: "Table") -> dict[str, str]:
    """The header's rows by name: the columns and their kinds, filled values, and columns that the user should check."""
    rows, encoding, target = table.rows, table.fitted, table.fitted.target
    what = "a number" if target.classes is None else counted(len(target.classes), "class", "classes")
    by_kind: dict[str, list[str]] = {}
    for column in encoding.numbers:
        by_kind.setdefault(column.kind.split()[0], []).append(column.name)
    by_kind[CATEGORY] = [column.name for column in encoding.categories]
    lines = {"target": f"{printable(target.name)}, {what}"}
    if rows.kept is not None:
        skipped = sum(count for _, count in rows.files) - len(rows)
        lines["target"] += f"; skipped: {counted(skipped, 'row')} without it"
    lines["columns"] = "; ".join(
        f"{counted(len(names), kind, 'categories' if kind == CATEGORY else None)}: {listed(names)}"
        for kind, names in by_kind.items()
        if names
    )
    if ignored := [name for name, kind in table.kinds.items() if kind == IGNORED]:
        lines["ignored"] = listed(ignored)
    if table.val_fraction == ALL:
        lines["split"] = f"all {len(rows):,} rows are measured"
    if table.encoding is not None:
        measured = _measured(table)
        return lines | _filled(table, measured) | _unseen(table, measured)
    holes = [(column.name, rows.columns[column.name].null_count / len(rows)) for column in encoding.numbers]
    if gaps := [f"{name} ({share:.1%})" for name, share in holes if share]:
        lines["missing"] = f"{listed(gaps)}: filled by the training rows' mean, and marked"
    lines |= _doubts(table)
    if table.target not in table.columns and target.classes and is_whole(rows.columns[target.name]):
        lines["target"] += f": few whole numbers, taken as classes; if numbers: {setting(target.name, NUMBER)}"
    if table.partition is not None:
        lines["split"] = _divided(table)
    return lines | _unseen(table, _measured(table))


def _measured(table: "Table") -> TextColumns:
    """The rows that validate."""
    return table.rows.filtered(table.masks[1]) if table.partition else table.of_split("val")


def _unseen(table: "Table", measured: TextColumns) -> dict[str, str]:
    """Values of categories from which nothing was learned."""
    unknown = table.fitted.unknown(measured)
    return {"unseen": f"{'; '.join(unknown[:3])}: seen less than twice in training"} if unknown else {}


def _filled(table: "Table", measured: TextColumns) -> dict[str, str]:
    """Missing numbers of rows that are encoded as another run's, which marks those that it lacked itself."""
    numbers = [column for column in table.fitted.numbers if column.name in measured.columns]
    holes = [(column, measured.columns[column.name].null_count / len(measured)) for column in numbers]
    gaps = [f"{c.name} ({share:.1%}{'' if c.marks else ', not marked'})" for c, share in holes if share]
    return {"missing": f"{listed(gaps)}: filled by the training rows' mean"} if gaps else {}


def _doubts(table: "Table") -> dict[str, str]:
    """Columns that may be identifiers, give the target away, or be codes, each with the override to type."""
    rows, lines = table.rows, dict[str, str]()
    inferred = [name for name, kind in table.kinds.items() if name not in table.columns and kind in (NUMBER, CATEGORY)]
    if ids := [n for n in inferred if is_identifier(n, rows.columns[n], is_number=table.kinds[n] == NUMBER)]:
        lines["ids"] = f"{listed(ids)}: nearly all values differ; to leave it out: {setting(ids[0], IGNORED)}"
    trains = table.masks[0]
    targets = np.asarray(table.fitted.target.values(rows))[trains]
    if leaking := leaks(table.fitted, table.fitted.raw(rows)[trains], targets):
        lines["leaks"] = (
            f"{listed(leaking)}: predicts the target alone; to leave it out: {setting(leaking[0], IGNORED)}"
        )
    numbers = [name for name in inferred if table.kinds[name] == NUMBER and name not in ids]
    if codes := [name for name in numbers if is_whole(rows.columns[name]) and may_be_codes(rows.columns[name])]:
        lines["codes"] = (
            f"{listed(codes)}: few whole numbers, taken as numbers; if codes: {setting(codes[0], CATEGORY)}"
        )
    return lines


def _divided(table: "Table") -> str:
    """How the rows to validate on were taken."""
    by = ""
    if table.group is not None:
        by = f", no {printable(table.group)} in both"
    elif table.time is not None:
        by = f", later by {printable(table.time)} than all training rows"
    if table.folds is not None:
        return f"fold {table.fold} of {table.folds}{by} (data.fold)"
    fraction = DRAWN if table.val_fraction is None else table.val_fraction
    how = "the last" if table.time is not None else "a random"
    return f"{how} {fraction:.0%} of the rows{by} (data.val_fraction)"


def is_identifier(name: str, column: pyarrow.ChunkedArray, *, is_number: bool) -> bool:
    """Whether nearly every value is another one, of a text; or all, of a whole number that is named or counted so."""
    values = column.drop_null()
    distinct = len(values.unique())
    if len(values) < FEWEST_ROWS or distinct < (1.0 if is_number else 0.9) * len(values):
        return False
    if not is_number or not is_whole(column):
        return not is_number
    ends = compute.min_max(values.cast("float64")).as_py()
    return bool(ID.search(name.lower()) or ID.search(name)) or ends["max"] - ends["min"] == distinct - 1


def may_be_codes(column: pyarrow.ChunkedArray) -> bool:
    """Whether a column of whole numbers has few values, each of them often."""
    values = column.drop_null()
    return 3 <= len(values.unique()) <= min(MOST_CODES, len(values) // 5)


def leaks(encoding: Encoding, raw: np.ndarray, target: np.ndarray) -> list[str]:
    """The columns each of which predicts the target alone. ``raw``, ``target``: of the training rows."""
    if len(target) < FEWEST_ROWS:
        return []
    count, has_classes = len(encoding.numbers), encoding.target.classes is not None
    return [
        name
        for number, name in enumerate(encoding.names)
        if _tells(raw[:, number], target, is_code=number >= count, has_classes=has_classes)
    ]


def _tells(values: np.ndarray, target: np.ndarray, *, is_code: bool, has_classes: bool) -> bool:
    there = (values > 0) if is_code else ~np.isnan(values)
    if there.sum() < max(FEWEST_ROWS, len(values) // 2):
        return False
    values, target = values[there], target[there]
    if has_classes:
        bins = values
        if not is_code and len(np.unique(values)) > BINS:  # few numbers may be codes
            bins = np.searchsorted(np.quantile(values, np.linspace(0, 1, BINS + 1)[1:-1]), values)
        table = np.zeros((len(np.unique(bins)), int(target.max()) + 1))
        np.add.at(table, (np.unique(bins, return_inverse=True)[1], target), 1)
        usual = table.sum(0).max() / len(target)
        return len(table) < len(target) / 5 and usual < ALL_BUT <= table.max(1).sum() / len(target)
    if not target.std() or not values.std():
        return False
    if not is_code and abs(float(np.corrcoef(values, target)[0, 1])) >= ALL_BUT:
        return True
    numbers = np.unique(values, return_inverse=True)[1]
    means = np.bincount(numbers, target) / np.bincount(numbers)
    explained = 1 - float(np.square(target - means[numbers]).sum() / np.square(target - target.mean()).sum())
    return len(means) < len(target) / 5 and explained >= ALL_BUT
