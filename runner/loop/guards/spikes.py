"""Spikes: updates whose loss or gradient norm is far above those before. All ranks find them together.

The limit is the median of the last updates plus a multiple of their median absolute deviation, neither of which a few
outliers move, on a plain and on a logarithmic scale. Source: Leys et al. 2013
(https://doi.org/10.1016/j.jesp.2013.03.013). Returning to a checkpoint and skipping the batches that led to a spike:
Chowdhery et al. 2022, section 5.1 (https://arxiv.org/abs/2204.02311).
"""

import math
from collections import deque
from collections.abc import Iterable, Sequence
from statistics import median
from typing import NamedTuple, Self

import torch
from torch import Tensor

from manyheads.runner.loop.guards.guard import Guard, Restart
from manyheads.runner.loop.non_finite import NotFinite
from manyheads.runner.loop.update import Update
from manyheads.runner.option.trainer_section import TrainerSection
from manyheads.runner.parallel.rank.parallel import Parallel
from manyheads.runner.parallel.rank.passes import ForwardResult
from manyheads.runner.run.checkpoint_places import StateDict

NORMAL = 1.4826  # a normal distribution's standard deviation in units of its median absolute deviation
LEAST = 0.01  # of the median: a deviation that is always accepted, for values that hardly vary
MOST_EXPONENT = 700.0  # of what doubles can hold
MOST = 10  # spikes within a window; more are not outliers, but a lasting change


class Spike(NamedTuple):
    """An update that stands out. ``step``: its number, counted from 1.

    ``loss``, ``norm``: of the global batch and its gradients; ``loss_limit``, ``norm_limit``: from the updates before,
    inf if they were too few.
    """

    step: int
    loss: float
    loss_limit: float
    norm: float
    norm_limit: float

    @property
    def reason(self) -> str:
        """What stands out: nan, loss or grad_norm; empty if nothing does."""
        if not (math.isfinite(self.loss) and math.isfinite(self.norm)):
            return "nan"
        return "loss" if self.loss > self.loss_limit else "grad_norm" if self.norm > self.norm_limit else ""

    def __str__(self) -> str:
        if self.reason == "nan":
            return f"in update {self.step} the loss is {self.loss:g}, and the norm of the gradients {self.norm:g}"
        what, value, limit = ("loss", self.loss, self.loss_limit)
        if self.reason == "grad_norm":
            what, value, limit = ("norm of the gradients", self.norm, self.norm_limit)
        return f"in update {self.step} the {what} is {value:.4g}, above {limit:.4g}, the limit by the updates before"


class Spikes(Guard):
    """Compares each update with the last ``window`` ones; ``threshold``: in standard deviations above their median.

    ``action``: "error", "skip" or "rollback"; ``span``: updates that are skipped after a return, up to the one with the
    spike. ``skipped``: by update, the spike for which it is skipped without being computed.
    """

    rejects, key = True, "spikes"

    def __init__(self, parallel: Parallel, *, action: str, window: int, threshold: float, span: int = 1):
        self._parallel, self._action, self._threshold, self._span = parallel, action, threshold, span
        self._window = window
        self._losses, self._norms = deque[float](maxlen=window), deque[float](maxlen=window)
        self._found: list[int] = []  # the updates with a spike
        self.skipped: dict[int, Spike] = {}

    @classmethod
    def of(cls, trainer: TrainerSection, parallel: Parallel) -> Self:
        """The detection that the config asks for, which has it on."""
        return cls(
            parallel,
            action=str(trainer.on_spike),
            window=trainer.spike_window,
            threshold=trainer.spike_threshold,
            span=trainer.spike_span,
        )

    def leave_out(self, step: int) -> Spike | None:
        return self.skipped.pop(step, None)

    def reject(self, update: Update, step: int, passes: list[ForwardResult], norm: Tensor) -> Spike | None:
        """The spike for which update ``step`` is skipped, None for a usual one; all ranks find the same.

        Costs a sum of three numbers over all ranks. Raises FloatingPointError, and Restart.
        """
        loss, norm_value = self._common(passes, norm)
        if loss is None or (update.precision.skips_overflow and math.isfinite(loss) and not math.isfinite(norm_value)):
            return None
        spike = Spike(step, loss, self._limit(self._losses), norm_value, self._limit(self._norms))
        if not spike.reason:
            self._losses.append(loss)
            self._norms.append(norm_value)
            return None
        self._found = [*(spike_step for spike_step in self._found if spike_step > step - self._window), step]
        self._refuse(spike)
        if self._action == "rollback":
            self.skipped |= dict.fromkeys(range(step - self._span + 1, step + 1), spike)
            raise Restart(spike, {"spikes": self.skipped})
        return spike

    def _common(self, passes: Sequence[ForwardResult], norm: Tensor) -> tuple[float | None, float]:
        """Mean loss and norm over all ranks, bit-identical on each; the loss is None if no sample counts.

        So NaN on one rank is NaN on all.
        """
        counted = [passed for passed in passes if passed.samples and self._parallel.counts_samples]
        losses = [passed.loss.double() * passed.scale for passed in counted]
        loss = torch.stack(losses).sum() if losses else torch.zeros((), dtype=torch.float64, device=norm.device)
        count = torch.tensor(float(sum(passed.counted for passed in counted)), dtype=torch.float64)
        numbers = [tensor.detach().to(self._parallel.device, torch.float64) for tensor in (loss, count, norm)]
        total, number, norms = self._parallel.reduce(torch.stack(numbers)).tolist()
        return total / number if number else None, norms / self._parallel.world_size

    def _limit(self, values: Sequence[float]) -> float:
        return limit_of(values, self._threshold) if len(values) == self._window else math.inf

    def _refuse(self, spike: Spike) -> None:
        """Raises FloatingPointError for a spike that ends the run."""
        if self._action == "error":
            what, remedy = (
                str(spike),
                (
                    "trainer.on_spike=skip skips such updates, rollback also returns to the last checkpoint; a "
                    "lower optimizer.lr, scheduler.warmup_epochs or trainer.clip_norm makes them rarer."
                ),
            )
        elif len(self._found) > MOST:
            what = f"{spike}, and it is the {len(self._found)}th within {self._window} updates: these are no outliers"
            remedy = "Lower optimizer.lr, raise trainer.spike_threshold, or set trainer.on_spike=null."
        else:
            return
        raise NotFinite(what, remedy, range(spike.step, spike.step + (spike.reason == "nan")))

    # -- what a checkpoint holds ---------------------------------------------------------------------

    def state_dict(self) -> StateDict:
        """The updates so far, and those that are still to be skipped, as plain lists."""
        ahead = [[step, *spike] for step, spike in self.skipped.items()]
        return {"losses": [*self._losses], "norms": [*self._norms], "found": self._found, "skipped": ahead}

    def load_state_dict(self, state: StateDict) -> None:
        """Restore the result of ``state_dict``, also from a run with another ``window``."""
        for window, name in ((self._losses, "losses"), (self._norms, "norms")):
            window.clear()
            window.extend(state[name])
        self._found = [*state["found"]]
        self.skipped = {step: Spike(*spike) for step, *spike in state["skipped"]}

    def restarted(self, memory: dict[int, Spike]) -> None:
        """Skip these updates, each for its spike."""
        self.skipped |= memory


def limit_of(values: Iterable[float], threshold: float) -> float:
    """The median plus ``threshold`` standard deviations, or the same of the logarithms if that is higher.

    Losses near zero, and norms of gradients, vary by factors: on a plain scale, usual values would stand out.
    """
    numbers = [*values]
    limit = _beyond(numbers, threshold, least=LEAST * abs(median(numbers)))
    if min(numbers) <= 0:
        return limit
    return max(limit, math.exp(min(_beyond([*map(math.log, numbers)], threshold), MOST_EXPONENT)))


def _beyond(values: Sequence[float], threshold: float, *, least: float = 0.0) -> float:
    """The median plus standard deviations of at least ``least``, estimated by the median absolute deviation."""
    middle = median(values)
    return middle + threshold * max(NORMAL * median(abs(value - middle) for value in values), least)


class NotFiniteGradients(Guard):
    """Rejects an update whose gradient norm is infinite or NaN, which all ranks see."""

    rejects = True

    def reject(self, update: Update, step: int, passes: list[ForwardResult], norm: Tensor) -> str | None:
        return None if torch.isfinite(norm) else "the gradients are not finite"
