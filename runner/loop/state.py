"""The state of training, to a checkpoint and back, also from another run's checkpoint and from other ranks."""

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from manyheads.runner.checkpoint.rank.checkpoint_content import best_of, kept
from manyheads.runner.checkpoint.rank.checkpoints import CheckpointStore
from manyheads.runner.checkpoint.rank.extra_state import packed, unpacked
from manyheads.runner.checkpoint.rank.fit import load_optimizer
from manyheads.runner.checkpoint.rank.lazy import real
from manyheads.runner.checkpoint.rank.load import sha256_of
from manyheads.runner.data.rank.batches import Batch
from manyheads.runner.data.rank.rng import get_state, seed_everything, set_state
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.loop.progress import Progress
from manyheads.runner.loop.train_settings import TrainSettings
from manyheads.runner.loop.trainer import Trainer
from manyheads.runner.parallel.rank.passes import RunState
from manyheads.runner.run.checkpoint_places import StateDict


class TrainingState:
    """One rank's view of the state of ``trainer``: of the whole model, or this rank's part of it."""

    def __init__(self, trainer: Trainer):
        self.trainer, self.update, self.parallel = trainer, trainer.update, trainer.update.parallel
        self.rejoining = Rejoining(self)

    def restore(self, state: StateDict, *, seed: int) -> None:
        """Restore everything. Raises ConfigurationError for a checkpoint of another model or optimizer."""
        trainer = self.trainer
        self.load(state)
        trainer.progress = Progress.from_state(state["progress"])
        self.update.schedule.load_state_dict(state["scheduler"])
        for observer in trainer.observers:
            observer.restore(state.get(observer.key) if observer.key else None)
        for guard in self.update.guards:
            if guard.key in state:
                guard.load_state_dict(state[guard.key])
        if len(state["rng"]) == self.parallel.world_size:
            set_state(real(state["rng"][self.parallel.rank]))
            if states := state.get("parallel"):
                self.parallel.load_own_state(real(states[self.parallel.rank]))
        else:  # another number of ranks: new streams, the same in every such attempt
            seed_everything(seed + 1 + self.parallel.data_rank + trainer.progress.step)

    def load(self, state: StateDict) -> None:
        """Restore the result of ``learned``. Raises ConfigurationError if it belongs to another model or optimizer."""
        update, precision = self.update, self.update.precision
        self.put(state["model"], state["source"])
        part = real(self.parallel.layout.split_optimizer(state["optimizer"]))
        load_optimizer(update.optimizer, part, state["source"])
        self.parallel.restored(update.model, update.optimizer)
        if state["precision"].keys() == precision.state_dict().keys():  # else it belongs to another precision
            precision.load_state_dict(state["precision"])

    def put(self, tensors: dict[str, Tensor], source: Any) -> None:
        """Load the whole model's weights into this rank's part of it."""
        self.update.put_own(self.parallel.layout.split(packed(tensors)), source)

    def learned(self) -> StateDict:
        """Everything that updates have changed, except the progress; of the whole model, complete on rank 0."""
        return {
            "model": self.weights(),
            "optimizer": self.parallel.layout.gather_optimizer(self.update.optimizer),
            "precision": self.update.precision.state_dict(),
        }

    def whole(self) -> StateDict:
        """The content of a checkpoint: of the whole model, with each rank's own state, complete on rank 0."""
        state = {**self.learned(), "rng": self.parallel.gather(get_state())}
        if (rank_state := self.parallel.own_state()) is not None:
            state["parallel"] = self.parallel.gather(rank_state)
        state |= {one.key: one.state_dict() for one in self.trainer.observers if one.key is not None}
        return {**state, **self.reached()}

    def shares(self) -> StateDict:
        """The content of a checkpoint, with this rank's part of each tensor as a RankShare."""
        update, layout, rank = self.update, self.parallel.layout, self.parallel.rank
        state = {
            "model": layout.share(update.own_weights()),
            "optimizer": layout.share_optimizer(update.optimizer),
            "precision": update.precision.state_dict(),
            "rng": {rank: get_state()},
        }
        state |= {one.key: one.shares() for one in self.trainer.observers if one.key is not None}
        if (rank_state := self.parallel.own_state()) is not None:
            state["parallel"] = {rank: rank_state}
        return {**state, **(self.reached() if rank == 0 else {})}

    def reached(self) -> StateDict:
        """The progress of training; the positions of the tables are known to the rank that writes them."""
        trainer, progress = self.trainer, self.trainer.progress
        return {
            **{guard.key: guard.state_dict() for guard in self.update.guards if guard.key is not None},
            "epoch_updates": trainer.train.updates,
            "scheduler": {"step": progress.step, **self.update.schedule.state_dict()},
            "progress": progress.state_dict(),
            "tables": trainer.reporter.recorder.position(),
        }

    def weights(self) -> dict[str, Tensor]:
        """The trained weights of the whole model, complete on rank 0, under the user's own names."""
        return unpacked(self.parallel.layout.gather(self.update.own_weights()))

    def weights_sha256(self) -> str:
        """The digest of the trained weights, on rank 0. Called on all ranks."""
        return sha256_of(self._weights_in_turn())

    def _weights_in_turn(self) -> Iterator[tuple[str, Tensor]]:
        """The weights in name order; those of a divided model one at a time, so that no rank holds all of them."""
        weights, layout = packed(self.update.own_weights()), self.parallel.layout
        if not self.parallel.shares_model:
            yield from sorted(layout.gather(weights).items())
            return
        for name in sorted({name for names in self.parallel.gather([*weights]) for name in names}):
            yield from layout.gather({name: weights[name]} if name in weights else {}).items()


def adapt_progress(trainer: Trainer, checkpoints: CheckpointStore, state: StateDict) -> None:
    """Fit the restored progress to this run. Raises ConfigurationError if it can't be, or nothing is left to train.

    The other run's best checkpoint becomes this run's if it exists; otherwise the search for the best starts over.
    """
    progress, updates, source = trainer.progress, trainer.train.updates, state["source"]
    try:
        progress.move_to(updates, before=state.get("epoch_updates"))
    except ValueError as error:
        raise ConfigurationError(
            f"{source} is from the middle of epoch {progress.epoch + 1}, and {error}: the rest of the epoch would "
            "have different samples. Set data.batch_size to its value there, or checkpoint.resume to a checkpoint "
            "from an epoch's end."
        ) from None
    progress.ended, progress.waited = None, 0
    waits_for_evaluation = progress.epoch_step == updates
    if progress.step >= trainer.settings.last_step and not waits_for_evaluation:
        key, value = _limit(trainer.settings)
        raise ConfigurationError(
            f"nothing is left to train: {source} is at epoch {progress.epoch}, step {progress.step}, and "
            f"{key}={value} ends there. Increase {key}."
        )
    parallel = trainer.update.parallel
    if checkpoints.enabled and not checkpoints.take_best(source, progress.best, copies=parallel.records):
        progress.best = None


def _limit(settings: TrainSettings) -> tuple[str, int]:
    """The key that ends the run, and its value."""
    if settings.last_step < settings.total_steps:
        return "trainer.stop_after", settings.last_step
    return f"trainer.{settings.limit}", settings.epochs if settings.limit == "epochs" else settings.total_steps


class Rejoining(RunState):
    """The state of a rank's run, for strategies whose ranks may leave and rejoin; others never use it."""

    def __init__(self, state: TrainingState):
        self._state, self._trainer, self._parallel = state, state.trainer, state.parallel
        self._best: StateDict | None = None  # the content of best.pt

    def catch_up(self, checkpoints: CheckpointStore, *, seed: int) -> bool:
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
