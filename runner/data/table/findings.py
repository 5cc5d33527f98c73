"""What a table's columns look like besides their kind: identifiers, codes, and columns that give the target away."""

import re

import numpy as np
import pyarrow
from pyarrow import compute

from manyheads.runner.data.table.encoding import Encoding

FEWEST_ROWS = 20  # with fewer, chance alone would say much
MOST_CODES = 20  # whole numbers of a column that may be codes of categories
ALL_BUT = 0.999  # of the target that a column explains alone
BINS = 32
ID = re.compile(r"(^|[_\W])(id|uuid|guid|key|index|unnamed)($|[_\W\d])|[a-z](ID|Id)$|^column_\d+$", re.ASCII)


def is_identifier(name: str, column: pyarrow.ChunkedArray, *, is_number: bool, is_whole: bool) -> bool:
    """Whether nearly every value is another one, of a text; or all, of a whole number that is named or counted so."""
    values = column.drop_null()
    distinct = len(values.unique())
    if len(values) < FEWEST_ROWS or distinct < (1.0 if is_number else 0.9) * len(values):
        return False
    if not is_number:
        return True
    if not is_whole:
        return False
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
    count = len(encoding.numbers)
    names = encoding.names
    return [
        names[number]
        for number in range(raw.shape[1])
        if _tells(raw[:, number], target, is_code=number >= count, has_classes=encoding.target.classes is not None)
    ]


def _tells(values: np.ndarray, target: np.ndarray, *, is_code: bool, has_classes: bool) -> bool:

    there = (values > 0) if is_code else ~np.isnan(values)
    if there.sum() < max(FEWEST_ROWS, len(values) // 2):
        return False
    values, target = values[there], target[there]
    if has_classes:
        bins = values if is_code else np.searchsorted(np.quantile(values, np.linspace(0, 1, BINS + 1)[1:-1]), values)
        table = np.zeros((len(np.unique(bins)), int(target.max()) + 1))
        np.add.at(table, (np.unique(bins, return_inverse=True)[1], target), 1)
        usual = table.sum(0).max() / len(target)
        return len(table) < len(target) / 5 and usual < ALL_BUT <= table.max(1).sum() / len(target)
    if not target.std() or not values.std():
        return False
    if not is_code:
        return abs(float(np.corrcoef(values, target)[0, 1])) >= ALL_BUT
    numbers = np.unique(values, return_inverse=True)[1]
    means = np.bincount(numbers, target) / np.bincount(numbers)
    explained = 1 - float(np.square(target - means[numbers]).sum() / np.square(target - target.mean()).sum())
    return len(means) < len(target) / 5 and explained >= ALL_BUT
