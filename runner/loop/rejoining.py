"""State that ranks keep for peers that rejoin, and take over from peers when they rejoin themselves."""

from manyheads.runner.checkpoint.rank.checkpoint_content import best_of, kept
from manyheads.runner.checkpoint.rank.checkpoints import Checkpoints
from manyheads.runner.checkpoint.sharded.rank.rank_share import StateDict
from manyheads.runner.data.rank.batches import Batch
from manyheads.runner.loop.state import TrainingState
from manyheads.runner.parallel.rank.passes import RunState


class Rejoining(RunState):
    """The state of a rank's run, as such a strategy asks for it; other strategies never do."""

    def __init__(self, state: TrainingState):
        self._state, self._trainer, self._parallel = state, state.trainer, state.parallel
        self._best: StateDict | None = None  # the content of best.pt

    def catch_up(self, checkpoints: Checkpoints, *, seed: int) -> bool:
        """Take over the state of other ranks if they are ahead; returns whether they were.

        Writes the rows and checkpoints that this rank missed, except for the last checkpoint.
        """
        reached = self._trainer.progress.step
        newer = self._parallel.catch_up(self, step=reached)
        if newer is None:
            return False
        self._state.restore({**newer, "source": "another rank"}, seed=seed)
        self._trainer.reporter.recorder.catch_up(newer["rows"], after=reached)
        self._best = best = newer["best"]
        if checkpoints.enabled and self._parallel.records and best and best["progress"]["step"] >= reached:
            checkpoints.save_best(best)
        return True

    def keep_best(self) -> None:
        """Keep the evaluated weights, which are the best so far, for ranks that rejoin."""
        if self._parallel.keeps_rows:
            self._best = kept(best_of(self._state.whole()))

    def standing(self) -> StateDict:
        self._trainer.collect_all()
        return {**self._state.whole(), "rows": self._trainer.reporter.recorder.kept(), "best": self._best}

    def drawn(self, batches: list[Batch], *, share: int, of: int) -> list[Batch]:
        return self._trainer.train.drawn(batches, self._trainer.progress.epoch_step, share=share, of=of)

    def idle(self) -> bool:
        heartbeat = self._trainer.heartbeat
        heartbeat.beat()
        return heartbeat.stop_signal != 0
