"""callbacks=predictions: the model's prediction for each sample of the last evaluation, in predictions.csv."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from manyheads.runner.callbacks.callback import Callback, RunContext, file_name
from manyheads.runner.callbacks.rank.sample_rows import in_windows, judged, write_table


class Predictions(Callback):
    """Writes each sample's loss, target and prediction in the data set's order; for "test" to predictions_test.csv.

    Each rank keeps the rows of its own samples; rank 0 gathers and writes them in parts.
    """

    every_rank = True

    def __init__(self) -> None:
        self.names: tuple[str, ...] = ()
        self._ids: list[int] = []
        self._rows: list[np.ndarray] = []

    def on_start(self, run: RunContext) -> None:
        self.run = run

    def on_evaluation_batch(self, outputs: Any, batch: Any, ids: Sequence[int]) -> None:
        self.names, counted, rows = judged(self.run.task, outputs, batch, ids)
        self._ids += counted
        self._rows.append(rows)

    def on_evaluation(self, split: str, samples: Any) -> None:
        ids, rows = self._ids, np.concatenate(self._rows) if self._rows else np.zeros((0, 0))
        self._ids, self._rows = [], []
        windows = in_windows(self.run.gather, ids, rows)
        names = next(filter(None, self.run.gather(self.names)), ())
        if self.run.rank > 0:
            for _ in windows:
                pass
            return
        write_table(self.run.folder / f"{file_name('predictions', split)}.csv", names, windows, samples)
