"""All that training has changed, to a checkpoint and back."""

from typing import Any

from torch import Tensor

from manyheads.runner.checkpoint.rank.fit import load_optimizer
from manyheads.runner.checkpoint.sharded.rank.rank_share import StateDict
from manyheads.runner.checkpoint.sharded.rank.read_sharded import real
from manyheads.runner.data.rank.rng import get_state, seed_everything, set_state
from manyheads.runner.loop.progress import Progress
from manyheads.runner.loop.trainer import Trainer


class TrainingState:
    """One rank's view of the state of ``trainer``: of the whole model, or this rank's part of it."""

    def __init__(self, trainer: Trainer):
        self.trainer, self.update, self.parallel = trainer, trainer.update, trainer.update.parallel

    def restore(self, state: StateDict, *, seed: int) -> None:
        """Restore everything from the checkpoint. Raises ConfigurationError for another model's or optimizer's."""
        trainer = self.trainer
        self.load(state)
        trainer.progress = Progress.from_state(state["progress"])
        self.update.schedule.load_state_dict(state["scheduler"])
        if (average := trainer.average) is not None:
            average.load_state_dict(real(state["average"])) if "average" in state else average.begin()
        if len(state["rng"]) == self.parallel.world_size:
            set_state(real(state["rng"][self.parallel.rank]))
            if own := state.get("parallel"):
                self.parallel.load_own_state(real(own[self.parallel.rank]))
        else:  # other ranks than before: new streams, the same in every such attempt
            seed_everything(seed + 1 + self.parallel.data_rank + trainer.progress.step)

    def load(self, state: StateDict) -> None:
        """Restore the result of ``learned``. Raises ConfigurationError for another model's or optimizer's."""
        update, precision = self.update, self.update.precision
        self.put(state["model"], state["source"])
        load_optimizer(update.optimizer, real(self.parallel.split_optimizer(state["optimizer"])), state["source"])
        self.parallel.restored(update.model, update.optimizer)
        if state["precision"].keys() == precision.state_dict().keys():  # else it was of another precision
            precision.load_state_dict(state["precision"])

    def put(self, whole: dict[str, Tensor], source: Any) -> None:
        """Load the whole model's weights into this rank's part of it."""
        self.update.put_own(self.parallel.split_tensors(whole), source)

    def learned(self) -> StateDict:
        """Everything that updates have changed, except the progress; of the whole model, complete on rank 0."""
        return {
            "model": self.weights(),
            "optimizer": self.parallel.gather_optimizer(self.update.optimizer.state_dict()),
            "precision": self.update.precision.state_dict(),
        }

    def whole(self) -> StateDict:
        """The content of a checkpoint: of the whole model, with each rank's own state, complete on rank 0."""
        state = {**self.learned(), "rng": self.parallel.gather(get_state())}
        if self.parallel.has_own_state:
            state["parallel"] = self.parallel.gather(self.parallel.own_state())
        if (average := self.trainer.average) is not None:
            state["average"] = average.state_dict()
        return {**state, **self.reached()}

    def shares(self) -> StateDict:
        """The content of a checkpoint, with this rank's part of each tensor as a Share."""
        update, rank = self.update, self.parallel.rank
        state = {
            "model": self.parallel.share_tensors(update.own_weights()),
            "optimizer": self.parallel.share_optimizer(update.optimizer),
            "precision": update.precision.state_dict(),
            "rng": {rank: get_state()},
        }
        if (average := self.trainer.average) is not None:
            state["average"] = average.shares()
        if self.parallel.has_own_state:
            state["parallel"] = {rank: self.parallel.own_state()}
        return {**state, **(self.reached() if rank == 0 else {})}

    def reached(self) -> StateDict:
        """The progress of training; the positions of the tables are known to the rank that writes them."""
        trainer, progress = self.trainer, self.trainer.progress
        return {
            "epoch_updates": trainer.train.updates,
            "scheduler": {"step": progress.step, **self.update.schedule.state_dict()},
            "progress": progress.state_dict(),
            "tables": trainer.reporter.recorder.position(),
        }

    def weights(self) -> dict[str, Tensor]:
        """The trained weights of the whole model, complete on rank 0, under the user's own names."""
        return self.parallel.gather_tensors(self.update.own_weights())
