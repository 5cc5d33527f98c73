"""A rank that makes the run's own updates and times some of them, as a total."""

from contextlib import closing

from manyheads.runner.answers.measure.pace_task import BEGAN, ENDED, WARM_UP, read_task
from manyheads.runner.checkpoint.rank.checkpoints import CheckpointStore
from manyheads.runner.data.rank.batches import Batch
from manyheads.runner.data.rank.rng import seed_everything
from manyheads.runner.loop import rank_main as worker
from manyheads.runner.loop.build import build_unrecorded
from manyheads.runner.loop.clock import Stopwatch, wait_for_all
from manyheads.runner.loop.determinism import operations_named
from manyheads.runner.loop.observers.observer import Observer
from manyheads.runner.loop.progress import Progress
from manyheads.runner.loop.session import Session
from manyheads.runner.loop.trainer import Trainer
from manyheads.runner.loop.update import UpdateResult
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.parallel.rank.parallel import Parallel
from manyheads.runner.run.data_files import no_link
from manyheads.runner.run.heartbeat import Heartbeat
from manyheads.runner.run.run_folder import RunFolder


class TimedUpdates(Observer):
    """Times the updates after the first WARM_UP."""

    def __init__(self, trainer: Trainer, folder: RunFolder, updates: int):
        self._parallel, self._folder, self._last = trainer.update.parallel, folder, WARM_UP + updates
        self.stopwatch = Stopwatch(self._parallel)

    def updated(self, progress: Progress, batches: list[Batch], result: UpdateResult) -> None:
        if progress.step == WARM_UP:
            wait_for_all(self._parallel)
            self._mark(BEGAN)
            self.stopwatch.start()
        elif progress.step == self._last:
            self.stopwatch.stop()
            self._mark(ENDED)

    def _mark(self, name: str) -> None:
        if self._parallel.records:
            with open(self._folder.path / name, "wb", opener=no_link):
                pass


@operations_named()
def work(run: RunConfig, parallel: Parallel, folder: RunFolder, heartbeat: Heartbeat) -> None:
    """Make the updates that the folder's task asks for, and write ``pace`` to result.json: their number and seconds."""
    updates = read_task(folder)
    trainer = build_unrecorded(run, parallel, folder, heartbeat)
    session = Session(trainer, run, checkpoints=CheckpointStore(folder, every=0, keep=0), folder=folder)
    with closing(trainer):
        seed_everything(run.seed + 1 + parallel.data_rank)
        session.update.prime(trainer.train.example, warm_up=trainer.settings.warm_up)
        timed = TimedUpdates(trainer, folder, updates)
        with trainer.observed(timed):
            trainer.fit(lambda *, best: None, due_after_step=lambda step: False)
        session.conclude(pace={"seconds": timed.stopwatch.seconds, "updates": updates})


main = worker.program(work, __name__)
