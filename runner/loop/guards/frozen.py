"""Parts of a model that are not trained: their gradients are dropped, and their statistics stay."""

from collections.abc import Sequence

from torch import nn

from manyheads.runner.loop.guards.guard import Guard
from manyheads.runner.optimizer.rank.freezing import Phases


class FrozenNorms(Guard):
    """Keeps these BatchNorm modules in evaluation mode."""

    def __init__(self, norms: Sequence[nn.Module]):
        self.frozen = norms

    def enter_training(self) -> None:
        for norm in self.frozen:
            norm.eval()


class FrozenPhases(Guard):
    """Freezes parts of the model epoch by epoch."""

    def __init__(self, phases: Phases):
        self._phases = phases

    def computed(self) -> None:
        self._phases.drop_gradients()

    def enter_epoch(self, epoch: int) -> None:
        self._phases.enter(epoch)

    def enter_training(self) -> None:
        for norm in self._phases.norms:
            norm.eval()
