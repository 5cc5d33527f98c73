"""callbacks=confusion_matrix: how often each class was taken for each other one, in confusion_matrix.csv."""

import csv
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from manyheads.runner.callbacks.base import Callback, RunContext
from manyheads.runner.metrics.confusion.rank import confusion
from manyheads.runner.run.data_files import no_formula, no_link
from manyheads.runner.run.errors import ConfigurationError


class ConfusionMatrix(Callback):
    """Of the last evaluation: a row for each class that was right, a column for each that was predicted."""

    every_rank = True

    def __init__(self) -> None:
        self._sum: Tensor | None = None

    def on_start(self, run: RunContext) -> None:
        self.run = run

    def on_evaluation_batch(self, outputs: Any, batch: Any, ids: Sequence[int]) -> None:
        scores, targets = self.run.task.scored(outputs, batch)
        if scores.ndim != 2 or targets.ndim != 1 or targets.is_floating_point():
            raise ConfigurationError(
                "callbacks.confusion_matrix is of tasks with one class for each sample, pixel or token. Leave it out."
            )
        found = confusion(scores, targets, scores.shape[1])
        self._sum = found if self._sum is None else self._sum + found

    def on_evaluation(self, split: str, samples: Any) -> None:
        own, self._sum = None if self._sum is None else self._sum.cpu().numpy(), None
        ranks = [each for each in self.run.gather(own) if each is not None]
        if self.run.rank or not ranks:
            return
        matrix = torch.from_numpy(sum(ranks[1:], ranks[0])).tolist()
        classes = getattr(samples, "classes", None) or range(len(matrix))
        names = [no_formula(str(name)) for name in classes]
        name = "confusion_matrix.csv" if split == "val" else f"confusion_matrix_{split}.csv"
        with open(self.run.folder / name, "w", newline="", opener=no_link) as file:
            table = csv.writer(file)
            table.writerow(["is \\ taken for", *names])
            table.writerows([each, *row] for each, row in zip(names, matrix, strict=True))
