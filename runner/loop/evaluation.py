"""Loss and metrics over every sample of the evaluation split, each counted once.

Metrics that sums cannot express are computed from each sample's scores, which are collected meanwhile.
"""

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from manyheads.runner.data.rank.batches import Batch
from manyheads.runner.data.rank.loader import Loader
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.loop.compile import is_compiled, let_batches_differ
from manyheads.runner.loop.meter import Meter, Sums
from manyheads.runner.loop.non_finite import first_finding
from manyheads.runner.loop.observers.observer import Observer, overriding
from manyheads.runner.loop.reporter import Reporter
from manyheads.runner.loop.scores import Scores
from manyheads.runner.loop.train_settings import Stop
from manyheads.runner.loop.update import Update
from manyheads.runner.metrics.metric import each_once
from manyheads.runner.parallel.rank.parallel import Parallel
from manyheads.runner.parallel.rank.passes import ForwardResult
from manyheads.runner.run.heartbeat import Heartbeat
from manyheads.runner.run.json_types import Numbers

INTERVAL = 50  # batches between two reductions, at each of which all ranks may stop together
AT_ONCE = 2**25  # bytes of scores that are gathered at a time


class CollectedScores:
    """The scores of this rank's samples, by sample id; ``values`` gathers those of all ranks."""

    def __init__(self, parallel: Parallel, scores: Scores):
        self._parallel, self._task, self._metrics = parallel, scores.task, scores.collected
        self._parts: list[tuple[Sequence[int], np.ndarray, np.ndarray]] = []
        self._bytes = 0
        self.without_value: dict[str, int] = {}  # by metric the number of classes that have none, set by ``values``

    def add(self, outputs: Any, batch: Any, ids: Sequence[int]) -> None:
        """Add a batch. Raises ConfigurationError if there are not as many scores as samples, or too many in total."""
        scores, targets = self._task.scored(outputs, batch)
        if scores.ndim != 2:
            raise ConfigurationError(
                f"metrics: {self._metrics[0].name} needs class scores, but this task predicts values. Leave it out.",
                key="metrics",
            )
        if len(scores) != len(ids):
            raise ConfigurationError(
                f"metrics: {self._metrics[0].name} needs one score per sample, but this task gives "
                f"{len(scores) // len(ids)} per sample. Leave it out, or use a metric computed from sums, such as "
                "f1.",
                key="metrics",
            )
        if targets.ndim == 1 and self._task.outputs == "logits":
            scores = log_odds(scores)
        part = ids, scores.detach().float().cpu().numpy(), targets.cpu().numpy()
        self._parts.append(part)
        self._bytes += part[1].nbytes + part[2].nbytes
        least = min(self._metrics, key=lambda metric: metric.at_most)
        if self._bytes > least.at_most * 2**20:
            raise ConfigurationError(
                f"metrics.{least.name}: the scores of this rank's samples take more than {least.at_most:g} MB. "
                f"Raise metrics.{least.name}.at_most, use more ranks, or leave it out.",
                key=f"metrics.{least.name}",
            )

    def values(self) -> dict[str, float | None]:
        """The value of each metric, the same on all ranks; gathers a few classes at a time."""
        ids = np.concatenate([np.asarray(part[0], np.int64) for part in self._parts] or [np.zeros(0, np.int64)])
        sizes = self._parallel.gather((len(ids), self._parts[0][1].shape[1] if self._parts else 0))
        samples, classes = sum(size for size, _ in sizes), max(width for _, width in sizes)
        step = max(1, AT_ONCE // max(1, 4 * samples))
        values: dict[str, list[float | None]] = {metric.name: [] for metric in self._metrics}
        for first in range(0, classes, step):
            columns = slice(first, min(first + step, classes))
            scores, is_it = self._together(ids, columns)
            for column in range(scores.shape[1]):
                kept = is_it[:, column] >= 0
                for metric in self._metrics:
                    values[metric.name].append(metric.of_class(scores[kept, column], is_it[kept, column] > 0))
        self.without_value = {name: per_class.count(None) for name, per_class in values.items()}
        return {metric.name: metric.over_classes(values[metric.name]) for metric in self._metrics}

    def _together(self, ids: np.ndarray, columns: slice) -> tuple[np.ndarray, np.ndarray]:
        """All ranks' scores of some classes, and their ``_members``, in the order of the samples' ids."""
        width = columns.stop - columns.start
        blocks = [scores[:, columns] for _, scores, _ in self._parts] or [np.zeros((0, width), np.float32)]
        which = [_members(targets, columns) for *_, targets in self._parts] or [np.zeros((0, width), np.int8)]
        ranks = self._parallel.gather((ids, np.concatenate(blocks), np.concatenate(which)))
        _, scores, members = each_once(ranks)
        return scores, members


def log_odds(logits: torch.Tensor) -> torch.Tensor:
    """The log-odds of each class against the rest, (N, classes) float64: in the order of its softmax probabilities.

    Those near 1, which fp32 could not tell apart, keep their distances.
    """
    log = logits.detach().double().log_softmax(1)
    return log - (-torch.expm1(log)).clamp(min=0).log()


def _members(targets: np.ndarray, columns: slice) -> np.ndarray:
    """1 where a sample is of a class, 0 where not, -1 where it is ignored: (N, classes) int8."""
    if targets.ndim == 2:
        return np.where(targets[:, columns] < 0, -1, targets[:, columns] > 0.5).astype(np.int8)
    membership = (targets[:, None] == np.arange(columns.start, columns.stop)).astype(np.int8)
    membership[targets < 0] = -1
    return membership


class Evaluation:
    """Evaluates what ``update`` trains on this rank's part of the samples; ``observers`` see each batch."""

    def __init__(
        self,
        update: Update,
        loader: Loader,
        reporter: Reporter,
        heartbeat: Heartbeat,
        stop: Stop,
        *,
        observers: Sequence[Observer] = (),
    ):
        self.update, self.loader, self.observers = update, loader, observers
        self.reporter, self.heartbeat, self.stop = reporter, heartbeat, stop
        self.is_noted = self.is_blamed = False

    def run(self, split: str = "val") -> tuple[Numbers, int] | None:
        """The split's columns and the number of unreadable samples; None if asked to stop meanwhile."""
        started, total, update, parallel = time.perf_counter(), Sums(), self.update, self.update.parallel
        parallel.share_buffers(update.model)
        model, meter = update.model.eval(), Meter(parallel, update.scores)
        collected = CollectedScores(parallel, update.scores) if update.scores.collected else None
        compiled = is_compiled(model)
        update.scores.unchecked = True
        with torch.no_grad():
            for number, batch in enumerate(self.loader.epoch(0), 1):
                if compiled:
                    let_batches_differ(batch.inputs)
                if (batch.count or parallel.evaluates_together) and (passed := self._pass(model, batch, collected)):
                    meter.add(passed)
                meter.note_corrupt(len(batch.corrupt))
                self.reporter.note_corrupt(batch.corrupt)
                self.heartbeat.beat()
                is_last = number == self.loader.updates
                if number % INTERVAL == 0 or is_last:
                    meter.close()
                    (sums,), flags = meter.collect(self.stop.flags())
                    total.add(sums)
                    self.stop.apply(flags)
                    if self.stop.signal is not None and not is_last:
                        return None
        update.scores.unchecked = True  # of training
        scores = update.scores.of(split, total)
        self._note_non_finite(split, scores[f"{split}_loss"])
        if collected is not None:
            scores |= {f"{split}_{name}": value for name, value in collected.values().items()}
            self._note_missing(split, collected.without_value)
        for observer in self.observers:
            observer.evaluated(split, self.loader.batches.dataset)
        columns = {f"{split}_seconds": time.perf_counter() - started, **scores, f"{split}_samples": int(total.count)}
        return columns, int(total.corrupt)

    def _note_non_finite(self, split: str, loss: float | None) -> None:
        """Report once which sample's data made a loss that is not a number; it is looked for by reading all again."""
        if loss is None or math.isfinite(loss) or self.is_blamed:
            return
        self.is_blamed = True
        if (finding := first_finding(self.loader, self.loader.sampler.epoch(0), self.update.parallel)) is not None:
            self.reporter.display.say(f"warning: the {split} loss is {loss}. The data is not finite: {finding}.")

    def _note_missing(self, split: str, without_value: dict[str, int]) -> None:
        """Report once which metrics leave classes out, since these have no sample, or no other has any."""
        missing = {f"{split}_{name}": count for name, count in without_value.items() if count}
        if missing and not self.is_noted:
            self.is_noted = True
            listed = ", ".join(f"{name} {count}" for name, count in missing.items())
            self.reporter.display.say(
                "warning: classes that no sample has, or that all have, are left out of the mean over classes: "
                f"{listed}"
            )

    def _pass(self, model: nn.Module, batch: Batch, collected: CollectedScores | None) -> ForwardResult | None:
        looks = overriding(Observer.evaluated_batch, self.observers)

        def look(outputs: Any) -> None:
            if collected is not None and len(batch.ids):
                collected.add(outputs, batch.content, batch.ids.tolist())
            for evaluated_batch in looks:
                evaluated_batch(outputs, batch)

        return self.update.evaluate(model, batch, on_outputs=look if looks or collected else None)
