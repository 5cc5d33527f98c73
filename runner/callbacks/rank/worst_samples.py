"""callbacks=worst_samples: the samples of the last evaluation with the highest loss, in worst_samples.csv."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from manyheads.runner.callbacks.callback import Callback, RunContext, file_name
from manyheads.runner.callbacks.rank.sample_rows import judged, write_table


class WorstSamples(Callback):
    """Writes the ``count`` samples with the highest loss, the worst first; wrong labels often turn up there.

    No rank keeps more than ``count`` rows.
    """

    every_rank = True

    def __init__(self, *, count: int = 50) -> None:
        self.count = count
        self.names: tuple[str, ...] = ()
        self._ids, self._rows = np.zeros(0, np.int64), np.zeros((0, 0))

    def on_start(self, run: RunContext) -> None:
        self.run = run

    def on_evaluation_batch(self, outputs: Any, batch: Any, ids: Sequence[int]) -> None:
        self.names, counted, rows = judged(self.run.task, outputs, batch, ids)
        self._keep(np.asarray(counted, np.int64), rows)

    def on_evaluation(self, split: str, samples: Any) -> None:
        ranks = self.run.gather((self.names, self._ids, self._rows))
        self._clear()
        for _, ids, rows in ranks:
            self._keep(ids, rows)
        names = next(filter(None, (rank[0] for rank in ranks)), ())
        if self.run.rank == 0:
            path = self.run.folder / f"{file_name('worst_samples', split)}.csv"
            write_table(path, names, [(self._ids, self._rows)], samples)
        self._clear()

    def _keep(self, ids: np.ndarray, rows: np.ndarray) -> None:
        """Keep the worst of the kept samples and these; among equal losses, those with the lowest ids."""
        if not len(ids):
            return
        self._ids = np.concatenate([self._ids, ids])
        self._rows = np.concatenate([self._rows, rows]) if len(self._rows) else rows
        order = np.lexsort((self._ids, -np.nan_to_num(self._rows[:, 0], nan=np.inf)))[: self.count]
        self._ids, self._rows = self._ids[order], self._rows[order]

    def _clear(self) -> None:
        self._ids, self._rows = np.zeros(0, np.int64), np.zeros((0, 0))
