"""A model's outputs for each sample of an evaluation, as rows of numbers, gathered from all ranks in order."""

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.metrics.metric import each_once
from manyheads.runner.run.data_files import cell, no_link

WINDOW = 2**16  # samples that are gathered at a time
Columns = tuple[str, ...]


def judged(task: Any, outputs: Any, batch: Any, ids: Sequence[int]) -> tuple[Columns, list[int], np.ndarray]:
    """Column names, and ids and a row of each sample that counts, (samples, columns): loss, target and prediction.

    For classes the loss is the cross-entropy, and the predicted class's probability is added; for several labels it is
    the mean of their binary cross-entropies, with each label's probability; for values it is the squared error.
    Raises ConfigurationError for tasks that score parts of samples, such as pixels.
    """
    scores, targets = (output.detach().double() for output in task.scored(outputs, batch))
    if len(scores) != len(ids):
        raise ConfigurationError(
            f"callbacks: this task scores {len(scores) // max(1, len(ids))} parts of each sample, but a row of "
            "predictions stands for a whole sample. Leave predictions and worst_samples out.",
            key="callbacks",
        )
    if scores.shape == targets.shape and scores.ndim == 1:
        return _rows(ids, loss=(scores - targets) ** 2, target=targets, prediction=scores)
    if scores.shape == targets.shape:
        kept, scores, targets = _kept((targets >= 0).any(1), ids, scores, targets)
        counts = targets >= 0
        losses = binary_cross_entropy_with_logits(scores, targets.clamp(min=0), reduction="none") * counts
        loss = losses.sum(1) / counts.sum(1)
        columns = {f"target_{number}": column for number, column in enumerate(targets.unbind(1))}
        columns |= {f"probability_{number}": column for number, column in enumerate(scores.sigmoid().unbind(1))}
        return _rows(kept, loss=loss, **columns)
    kept, scores, targets = _kept(targets >= 0, ids, scores, targets)
    loss = cross_entropy(scores, targets.long(), reduction="none")
    probability, prediction = scores.softmax(1).max(1)
    return _rows(kept, loss=loss, target=targets, prediction=prediction, probability=probability)


def _kept(counts: Tensor, ids: Sequence[int], *columns: Tensor) -> tuple[Any, ...]:
    """The ids, and rows of the columns, for which ``counts``, (samples,), is true."""
    return [number for number, is_kept in zip(ids, counts.tolist(), strict=True) if is_kept], *(
        c[counts] for c in columns
    )


def in_windows(
    gather: Callable[[Any], list[Any]], ids: Sequence[int], rows: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """All ranks' ids and rows in the order of the ids, each id once, in parts.

    Every rank must consume the iterator, since each part is gathered from all ranks.
    """
    sample_ids = np.asarray(ids, np.int64)
    last = max(gather(int(sample_ids.max()) if len(sample_ids) else -1))
    for first in range(0, last + 1, WINDOW):
        chosen = (sample_ids >= first) & (sample_ids < first + WINDOW)
        ranks = [rank for rank in gather((sample_ids[chosen], rows[chosen])) if len(rank[0])]
        if ranks:
            ordered, together = each_once(ranks)
            yield ordered, together


def _rows(ids: Sequence[int], **columns: Tensor) -> tuple[Columns, list[int], np.ndarray]:
    return tuple(columns), [*ids], torch.stack([column.double() for column in columns.values()], 1).cpu().numpy()


def write_table(
    path: Path, names: Sequence[str], windows: Iterable[tuple[np.ndarray, np.ndarray]], samples: Any
) -> None:
    """Write a row for each sample; with class names and file paths, if ``samples`` has ``classes`` and ``paths``."""
    paths, classes = getattr(samples, "paths", None), getattr(samples, "classes", None)
    with open(path, "w", encoding="utf-8", errors="surrogateescape", newline="", opener=no_link) as file:
        table = csv.writer(file)
        table.writerow(["id", *names, *(["path"] if paths is not None else [])])
        for ids, rows in windows:
            for number, row in zip(ids.tolist(), rows, strict=True):
                cells = [_shown(column, value, classes) for column, value in zip(names, row, strict=True)]
                table.writerow([number, *cells, *map(cell, [] if paths is None else [paths[number]])])


def _shown(name: str, value: float, classes: Sequence[str] | None) -> object:
    """The content of a cell: the class's name instead of its number, if names are known."""
    if classes is None or name not in ("target", "prediction") or not float(value).is_integer():
        return f"{value:.9g}"
    return cell(classes[int(value)]) if 0 <= value < len(classes) else str(int(value))
