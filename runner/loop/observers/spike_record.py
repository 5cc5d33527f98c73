"""The record of updates that are skipped for a spike, with their samples: spikes.csv."""

from manyheads.runner.data.keys import Multiset
from manyheads.runner.data.rank.batches import Batch
from manyheads.runner.loop.guards.spikes import Spike
from manyheads.runner.loop.observers.observer import Observer
from manyheads.runner.loop.progress import Progress
from manyheads.runner.loop.reporter import Reporter
from manyheads.runner.loop.update import UpdateResult
from manyheads.runner.parallel.rank.parallel import Parallel


class SpikeRecord(Observer):
    """Writes the rows, on the rank that has the tables, and says why each update is skipped."""

    def __init__(self, reporter: Reporter, parallel: Parallel):
        self._reporter, self._parallel = reporter, parallel

    def updated(self, progress: Progress, batches: list[Batch], result: UpdateResult) -> None:
        if not isinstance(spike := result.rejection, Spike):  # the same on all ranks
            return
        step = progress.step
        taken = [passed.taken for passed in result.passes if self._parallel.counts_samples]
        samples = [sample for some in taken if some and not isinstance(some, Multiset) for sample in some[1].tolist()]
        self._reporter.recorder.spike(
            {
                "epoch": progress.epoch + 1,
                "step": step,
                "spike": spike.step,
                "reason": spike.reason,
                **{name: getattr(spike, name) for name in ("loss", "loss_limit", "norm", "norm_limit")},
                "samples": " ".join(str(sample) for rank in self._parallel.gather(samples) for sample in rank),
            }
        )
        reason = str(spike) if spike.step == step else f"update {step}, which led to a spike"
        self._reporter.display.say(f"skipped: {reason}")
