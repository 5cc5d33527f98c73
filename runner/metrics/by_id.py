"""Gathering per-sample results of all ranks by the ids of the samples."""

from collections.abc import Sequence
from typing import Any

import numpy as np


def each_once(ranks: Sequence[tuple[np.ndarray, ...]]) -> tuple[Any, ...]:
    """The samples of all ranks in the order of their ids, each once.

    ranks: for each rank the ids, (n,), and arrays of the same length. Returns the ids, and the arrays in that order.
    """
    columns = [np.concatenate(parts) for parts in zip(*ranks, strict=True)]
    ids, chosen = np.unique(columns[0], return_index=True)
    return ids, *(column[chosen] for column in columns[1:])
