"""Averages of the weights over training, which often perform better than the final weights: EMA and SWA."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from manyheads.runner.checkpoint.rank.lazy import real
from manyheads.runner.checkpoint.rank.tied import names_of
from manyheads.runner.data.rank.batches import Batch
from manyheads.runner.loop.observers.observer import Observer
from manyheads.runner.loop.progress import Progress
from manyheads.runner.loop.update import Update, UpdateResult
from manyheads.runner.run.checkpoint_places import StateDict

if TYPE_CHECKING:
    from manyheads.runner.data.rank.loader import Loader


class Average(Observer):
    """An average of the parameters that the optimizer has on this rank, elementwise, in fp32 or better.

    Buffers are not averaged; those of the model are used. Tied weights have one average, under each of their names.
    ``count``: how often weights have been averaged in; ``is_evaluated``: whether evaluations, and therefore best.pt,
    use the average.
    """

    key = "average"
    is_evaluated = False

    def __init__(self, update: Update):
        self._update = update
        tied = names_of(update.parallel.unwrap(update.model))
        self._names = [(name, position) for position, first in enumerate(update.names) for name in tied[first]]
        self.begin()

    def begin(self) -> None:
        """Restart the average from the current weights."""
        self.count = 0
        self.tensors = [
            parameter.detach().to(torch.promote_types(parameter.dtype, torch.float32), copy=True)
            for parameter in self._update.parameters
        ]

    def evaluating(self) -> AbstractContextManager[Any]:
        return self.in_place() if self.is_evaluated else super().evaluating()

    @torch.no_grad()
    def take(self, share: float) -> None:
        """Move the average towards the weights by the fraction ``share``."""
        pairs = zip(self._update.parameters, self.tensors, strict=True)
        torch._foreach_lerp_(self.tensors, [p.detach().to(mean.dtype) for p, mean in pairs], share)
        self.count += 1

    @torch.no_grad()
    def put(self) -> None:
        """Replace the model's weights by the average."""
        update = self._update
        averaged = {name: weight.clone() for name, weight in update.own_weights().items()}
        for name, mean in self._named().items():
            update.parallel.layout.local(averaged[name]).copy_(mean)
        update.put_own(averaged, "the average of the weights")

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """A context in which the model has the average as its weights."""
        last = {name: weight.clone() for name, weight in self._update.own_weights().items()}
        self.put()
        try:
            yield
        finally:
            self._update.put_own(last, "the weights before")

    def _named(self) -> dict[str, Tensor]:
        """The average of each parameter, by all of its names."""
        return {name: self.tensors[position] for name, position in self._names}

    # -- checkpoints ---------------------------------------------------------------------------------

    def whole(self) -> dict[str, Tensor]:
        """The average of the whole model's weights, by name, complete on rank 0; all ranks call it."""
        return self._update.parallel.layout.gather(self._named())

    def state_dict(self) -> StateDict:
        return {"weights": self.whole(), **self.about()}

    def shares(self) -> StateDict:
        return {"weights": self._update.parallel.layout.share(self._named()), **self.about()}

    def about(self) -> StateDict:
        """The metadata of the average, the same on all ranks."""
        return {"count": self.count, "is_evaluated": self.is_evaluated}

    def restore(self, state: StateDict | None) -> None:
        """Restore the result of ``state_dict``, under any strategy; None restarts from the current weights."""
        self.begin() if state is None else self.load_state_dict(real(state))

    def load_state_dict(self, state: StateDict) -> None:
        """Restore a state that is read already."""
        layout = self._update.parallel.layout
        parts = real(layout.split(state["weights"]))
        for name, mean in zip(self._update.names, self.tensors, strict=True):
            mean.copy_(layout.local(parts[name]))
        self.count = state["count"]


class EMA(Average):
    """Exponential moving average, which keeps the fraction ``decay`` of itself after every ``every`` updates.

    ``warmup``: at first it keeps less, (1 + n) / (10 + n) after n steps. Sources: Polyak and Juditsky 1992
    (https://doi.org/10.1137/0330046); Tan and Le 2019 (https://arxiv.org/abs/1905.11946) for such decays.
    """

    is_evaluated = True

    def concluding(self) -> Mapping[str, Any]:
        return {"evaluated": "ema"}

    def __init__(self, update: Update, *, decay: float, every: int, warmup: bool):
        super().__init__(update)
        self.decay, self.every, self.warmup = decay, every, warmup

    def updated(self, progress: Progress, batches: list[Batch], result: UpdateResult) -> None:
        if result.rejection is None and progress.step % self.every == 0:
            stays = min(self.decay, (1 + self.count) / (10 + self.count)) if self.warmup else self.decay
            self.take(1 - stays)


class SWA(Average):
    """Stochastic weight averaging: the mean of the weights at the ends of epochs from ``start`` on, counted from 1.

    After the last epoch the model takes this mean permanently, with BatchNorm statistics from one more pass over that
    epoch's samples. Source: Izmailov et al. 2018 (https://arxiv.org/abs/1803.05407).
    """

    def __init__(self, update: Update, *, start: int):
        super().__init__(update)
        self.first, self.epoch, self.is_put = start, 0, False

    def epoch_trained(self, progress: Progress, *, is_last: bool, train: "Loader") -> None:
        epoch = progress.epoch
        if epoch + 1 >= self.first and epoch >= self.epoch:  # else this epoch's evaluation was interrupted
            self.take(1 / (self.count + 1))
            self.epoch = epoch + 1
        if is_last and self.count and not self.is_put:
            self.put()
            self._learn_statistics(train.epoch(epoch))
            self.is_put = True

    def about(self) -> StateDict:
        return super().about() | {"epoch": self.epoch, "is_put": self.is_put}

    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        self.epoch, self.is_put = state["epoch"], state["is_put"]

    @torch.no_grad()
    def _learn_statistics(self, batches: Iterator[Any]) -> None:
        """Replace running statistics by means over this rank's batches; rank 0's are kept, as always."""
        update, parallel = self._update, self._update.parallel
        model = update.model.eval()  # no dropout, so that no random numbers are drawn
        norms = [module for module in model.modules() if isinstance(module, _BatchNorm) and module.track_running_stats]
        frozen = {module for guard in update.guards for module in guard.frozen}
        norms = [norm for norm in norms if norm not in frozen]
        if not norms:
            return
        momenta = [norm.momentum for norm in norms]
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # the mean over all batches
            norm.train()
        for batch in batches:
            if batch.count or parallel.evaluates_together:
                with update.precision.autocast():
                    parallel.evaluate(model, batch.inputs)
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
