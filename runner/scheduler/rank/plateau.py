"""scheduler=plateau: the learning rate falls when the monitored metric no longer improves."""

import math
from typing import Any

from torch.optim import Optimizer

from manyheads.runner.run.checkpoint_places import StateDict
from manyheads.runner.scheduler.rank.schedules import Schedule


class Plateau(Schedule):
    """The rate is multiplied by ``gamma`` after more than ``patience`` evaluations in a row without an improvement.

    threshold: the relative change that counts as an improvement. min_factor: lower bound, as a fraction of the learning
    rate. The same as torch's ReduceLROnPlateau with relative thresholds.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        *,
        gamma: float,
        patience: int,
        threshold: float,
        min_factor: float,
        **common: Any,
    ) -> None:
        super().__init__(optimizer, **common)
        self._gamma, self._patience, self._threshold, self._least = gamma, patience, threshold, min_factor
        self._factor, self._bad = 1.0, 0
        self._best: float | None = None

    def factor(self, update: int) -> float:
        return self._factor

    def evaluated(self, score: float | None, direction: str) -> None:
        if score is None:
            return
        signed = -score if direction == "max" else score  # a NaN is no improvement
        if signed < (math.inf if self._best is None else self._best - abs(self._best) * self._threshold):
            self._best, self._bad = signed, 0
            return
        self._bad += 1
        if self._bad > self._patience:
            self._factor, self._bad = max(self._least, self._factor * self._gamma), 0

    def forget_best(self) -> None:
        self._best, self._bad = None, 0

    def state_dict(self) -> StateDict:
        return {"factor": self._factor, "best": self._best, "bad": self._bad}

    def load_state_dict(self, state: StateDict) -> None:
        if self.state_dict().keys() <= state.keys():
            self._factor, self._best, self._bad = state["factor"], state["best"], state["bad"]
