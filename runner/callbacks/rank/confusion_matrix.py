"""callbacks=confusion_matrix: how often each class was predicted as each other class, as a table and a picture."""

import csv
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from torch import Tensor

from manyheads.runner.callbacks.callback import Callback, RunContext, file_name, png
from manyheads.runner.errors import ConfigurationError, printable
from manyheads.runner.metrics.rank.confusion import confusion
from manyheads.runner.run.data_files import cell, no_link

NAMED, NUMBERED = 40, 20  # most classes for which names, and numbers, are drawn


class ConfusionMatrix(Callback):
    """The confusion matrix of the last evaluation: a row for each true class, a column for each predicted class."""

    every_rank = True

    def __init__(self) -> None:
        self._sum: Tensor | None = None

    def on_start(self, run: RunContext) -> None:
        self.run, self._step = run, run.step

    def on_update(self, step: int) -> None:
        self._step = step

    def on_evaluation_batch(self, outputs: Any, batch: Any, ids: Sequence[int]) -> None:
        scores, targets = self.run.task.scored(outputs, batch)
        if scores.ndim != 2 or targets.ndim != 1 or targets.is_floating_point():
            raise ConfigurationError(
                "callbacks.confusion_matrix needs a task with one class for each sample, pixel or token. Leave it out.",
                key="callbacks.confusion_matrix",
            )
        matrix = confusion(scores.argmax(1), targets, scores.shape[1])
        self._sum = matrix if self._sum is None else self._sum + matrix

    def on_evaluation(self, split: str, samples: Any) -> None:
        counts, self._sum = None if self._sum is None else self._sum.cpu().numpy(), None
        ranks = [part for part in self.run.gather(counts) if part is not None]
        if self.run.rank or not ranks:
            return
        matrix = sum(ranks[1:], ranks[0]).tolist()
        classes = getattr(samples, "classes", None) or range(len(matrix))
        names = [printable(name) for name in classes]
        name = file_name("confusion_matrix", split)
        with open(self.run.folder / f"{name}.csv", "w", newline="", opener=no_link) as file:
            table = csv.writer(file)
            table.writerow(["is \\ taken for", *map(cell, names)])
            table.writerows([cell(name), *row] for name, row in zip(names, matrix, strict=True))
        with rc_context({"text.parse_math": False}):  # a class name may contain $
            self.run.picture(name, drawn(matrix, names), self._step)


def drawn(matrix: list[list[float]], names: Sequence[str]) -> bytes:
    """The matrix as a PNG: shades are fractions of a row, so that rare classes show too; names and counts if few."""
    counts = np.asarray(matrix, dtype=float)
    shares = counts / counts.sum(1, keepdims=True).clip(min=1)
    side = min(12.0, 3 + 0.4 * len(names))
    figure = Figure(figsize=(side, side), layout="constrained")
    axes = figure.add_subplot(xlabel="predicted", ylabel="target")
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    if len(names) <= NAMED:
        axes.set_xticks(range(len(names)), names, rotation=90)
        axes.set_yticks(range(len(names)), names)
    if len(names) <= NUMBERED:
        for (row, column), share in np.ndenumerate(shares):
            shade = "white" if share > 0.5 else "black"
            axes.text(column, row, f"{counts[row, column]:g}", ha="center", va="center", color=shade, fontsize=8)
    return png(figure)
