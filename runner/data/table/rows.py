"""Which rows of a table validate: at random, by groups that stay together, or the last ones by time."""

from collections.abc import Sequence

import numpy as np

from manyheads.runner.data.partition import Partition
from manyheads.runner.errors import ConfigurationError

DRAWN = 0.2  # fraction of the rows, where there are no others to validate on


def validating(
    partition: Partition, size: int, *, groups: np.ndarray | None = None, times: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Masks, (N,) bool: the rows to train on, and those to validate on. With ``times`` and folds, some are neither.

    ``groups``: of each row, a number; rows of one are never divided. ``times``: of each row; a row to validate on is
    later than all to train on. Raises ConfigurationError if one side would be empty.
    """
    if times is not None:
        trains, validates = _by_time(partition, times)
    elif groups is not None:
        trains, validates = _by_group(partition, groups)
    else:
        validates = np.ones(size, bool)
        validates[partition.indices(size, train=True)] = False
        return ~validates, validates
    if not trains.any() or not validates.any():
        key, value = ("data.time", "its values") if times is not None else ("data.group", "its groups")
        raise ConfigurationError(
            f"{key}: {value} cannot be divided so that there are rows to train on and rows to validate on. Set it to "
            "null, or to a column with more values.",
            key=key,
        )
    return trains, validates


def _by_group(partition: Partition, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """In a random order, each group goes to where most rows are missing."""
    sizes = np.bincount(groups)
    order = np.random.RandomState(partition.seed % 2**32).permutation(len(sizes))
    fraction = partition.val_fraction
    shares: Sequence[float] = [1 - fraction, fraction] if fraction is not None else [1.0] * (partition.folds or 1)
    wanted = np.array(shares) / sum(shares) * len(groups)
    part = np.zeros(len(sizes), int)
    for group in order:
        part[group] = int(np.argmax(wanted))
        wanted[part[group]] -= sizes[group]
    validates = part[groups] == (1 if fraction is not None else partition.fold)
    return ~validates, validates


def _by_time(partition: Partition, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The last fraction; of folds, a part that follows all parts that are trained on, as of TimeSeriesSplit."""
    ordered = np.sort(times)
    if partition.val_fraction is not None:
        first = ordered[min(len(times) - 1, round(len(times) * (1 - partition.val_fraction)))]
        return times < first, times >= first
    folds, fold = partition.folds or 1, partition.fold or 0
    bounds = [ordered[len(times) * (fold + part) // (folds + 1)] for part in (1, 2) if fold + part <= folds]
    trains = times < bounds[0]
    return trains, ~trains & ((times < bounds[1]) if len(bounds) > 1 else True)
