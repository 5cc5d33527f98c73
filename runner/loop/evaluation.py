"""Loss and metrics over every sample of the evaluation split, each counted once."""

import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from manyheads.runner.callbacks.callback import Callback
from manyheads.runner.data.rank.batches import Batch
from manyheads.runner.data.rank.loader import Loader
from manyheads.runner.loop.collected import CollectedScores
from manyheads.runner.loop.compile import is_compiled, let_batches_differ
from manyheads.runner.loop.meter import Meter, Sums
from manyheads.runner.loop.reporter import Reporter
from manyheads.runner.loop.stopping import Stop
from manyheads.runner.loop.update import Update
from manyheads.runner.parallel.rank.passes import ForwardResult
from manyheads.runner.run.heartbeat import Heartbeat
from manyheads.runner.run.json_types import Numbers

INTERVAL = 50  # batches between two reductions, at each of which all ranks may stop together


class Evaluation:
    """Evaluates this rank's share with what ``update`` trains; ``callbacks`` see each batch."""

    def __init__(
        self,
        *,
        update: Update,
        loader: Loader,
        reporter: Reporter,
        heartbeat: Heartbeat,
        stop: Stop,
        callbacks: Sequence[Callback] = (),
    ):
        self.update, self.loader, self.callbacks = update, loader, callbacks
        self.reporter, self.heartbeat, self.stop = reporter, heartbeat, stop

    def run(self, split: str = "val") -> tuple[Numbers, int] | None:
        """The split's columns and the number of unreadable samples; None when asked to stop meanwhile."""
        started, total, update, parallel = time.perf_counter(), Sums(), self.update, self.update.parallel
        parallel.share_buffers(update.model)
        model, meter = parallel.evaluated(update.model).eval(), Meter(parallel, update.scores)
        collected = CollectedScores(parallel, update.scores) if update.scores.collected else None
        compiled = is_compiled(model)
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
                    self.stop.hear(flags)
                    if self.stop.signal is not None and not is_last:
                        return None
        scores = update.scores.of(split, total)
        if collected is not None:
            scores |= {f"{split}_{name}": value for name, value in collected.values().items()}
        for callback in self.callbacks:
            callback.on_evaluation(split, self.loader.batches.dataset)
        columns = {
            f"{split}_seconds": time.perf_counter() - started,
            **scores,
            f"{split}_samples": int(total.count),
        }
        return columns, int(total.corrupt)

    def _pass(self, model: nn.Module, batch: Batch, collected: CollectedScores | None) -> ForwardResult | None:
        def look(outputs: Any) -> None:
            if collected is not None and batch.ids:
                collected.add(outputs, batch.content, batch.ids)
            for callback in self.callbacks:
                callback.on_evaluation_batch(outputs, batch.content, batch.ids)

        return self.update.evaluate(model, batch, on_outputs=look if self.callbacks or collected else None)
