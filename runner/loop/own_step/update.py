"""An update whose losses and turns the task's own step decides. The loop uses it in place of Update for such a task.

In each turn all micro-batches run up to their next ``yield``; then the gradients of that optimizer's parameters are
exchanged, unscaled, clipped and applied, with the guards' points as in loop/guards/guard.py, and all others dropped.
"""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from manyheads.runner.data.rank.batches import Batch
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.loop.own_step.context import StepContext
from manyheads.runner.loop.own_step.turns import StepRun, Turns
from manyheads.runner.loop.update import Update, UpdateResult
from manyheads.runner.parallel.rank.flat_buckets import exchange_gradients
from manyheads.runner.parallel.rank.passes import ForwardResult
from manyheads.runner.parallel.rank.process_group import reads_buffers


class SteppingUpdate(Update):
    """Changes one rank's model by the task's step. ``seed``: of noise; ``called``: the model as steps get it.

    ``parts``: names of the parameters of each optimizer, by its name, which is empty if it is the only one;
    ``is_rejected``: whether the last turn was skipped; ``turn``: the name of the optimizer whose turn it is.
    """

    def __init__(self, *wrapped: Any, seed: int, **parts: Any):
        super().__init__(*wrapped, **parts)
        self.seed, self.is_rejected, self._is_checked = seed, False, False
        self.turn = ""
        self._weights = dict(self.model.named_parameters())
        self.called = ThroughRoot(self.model) if self.parallel.shares_model else self.model
        self._broadcasts = self.parallel.is_replica and reads_buffers(self.model)
        self.parts = {"": [*self.names]}
        if (several := getattr(self.optimizer, "parts", None)) is not None:
            names = iter(self.names)
            self.parts = {
                part: [next(names) for group in optimizer.param_groups for _ in group["params"]]
                for part, optimizer in several.items()
            }

    def __call__(self, batches: list[Batch], *, number: int, wants_norm: bool) -> UpdateResult:
        self.schedule.set(number)
        step, guards = number + 1, tuple(self.guards)
        for guard in guards:
            if (rejection := guard.leave_out(step)) is not None:
                return self._leave_out(batches, rejection)
        if self._broadcasts:
            self.parallel.share_buffers(self.model)
        turns, squares, rejection = Turns(self, batches, number=number), list[Tensor](), None
        judges = [guard for guard in guards if guard.rejects]
        buffers = [b.clone() for b in self.model.buffers()] if judges else []
        while (part := turns.take()) is not None:
            guards = tuple(self.guards)  # a guard may remove itself
            self.turn = part
            self._exchange(part)
            for guard in guards:
                guard.computed()
                guard.exchanged(self, step, batches)
            self.precision.unscale(self.optimizer)
            for guard in guards:
                guard.unscaled()
            norm = self.gradient_norm() if wants_norm or judges or math.isfinite(self.clipping.norm) else 0.0
            squares.append(torch.as_tensor(norm).square())
            reason = self._rejection(step, [], norm)
            self.is_rejected = reason is not None
            self._step(buffers, norm, is_rejected=self.is_rejected)
            rejection = rejection or reason
        for guard in guards:
            guard.stepped(step)
        return UpdateResult(turns.passes(), torch.stack(squares).sum().sqrt(), rejection)

    def prime(self, example: Callable[[], Batch], *, warm_up: bool = False) -> None:
        """Nothing: no wrapper watches the passes of a step."""

    def evaluate(
        self, model: nn.Module, batch: Batch, *, on_outputs: Callable[[Any], None] | None = None
    ) -> ForwardResult | None:
        """As in Update; the loss is the sum of those of all turns."""
        with self.precision.autocast():
            run = StepRun(self, batch, StepContext(self, batch, 0, training=False))
            while run.advance() is not None:
                pass
            if run.loss is None or not (batch.count and self.parallel.counts_samples):
                return None
            if on_outputs is not None:
                on_outputs(run.outputs)
            return self.scores.passed(run.loss, run.outputs, batch)

    def accumulating(self, *, last: bool) -> AbstractContextManager:
        """Context for one micro-batch in a turn."""
        return nullcontext() if self.parallel.is_replica else self.parallel.accumulating(self.model, last=last)

    @torch.no_grad()
    def follow(self, teacher: str, source: str, decay: float) -> None:
        """As ``StepContext.follow``, in place."""
        pairs = self._pairs(teacher, source)
        local, full = self.parallel.layout.local, self.precision.full
        means = [local(full(mean).detach()) for mean, _ in pairs]
        weights = [local(full(weight).detach()).to(mean.dtype) for mean, (_, weight) in zip(means, pairs, strict=True)]
        torch._foreach_lerp_(means, weights, 1 - decay)
        for mean, (rounded, _) in zip(means, pairs, strict=True):
            if full(rounded) is not rounded:
                rounded.copy_(mean)
        buffers = dict(self.model.get_submodule(source).named_buffers())
        for name, buffer in self.model.get_submodule(teacher).named_buffers():
            if name in buffers:
                buffer.copy_(buffers[name])

    def _pairs(self, teacher: str, source: str) -> list[tuple[nn.Parameter, nn.Parameter]]:
        """The parameters of a teacher, each with its source's. Raises ConfigurationError."""
        names = [name for name in self._weights if name.startswith(f"{teacher}.")]
        sources = [self._weights.get(f"{source}.{name.removeprefix(f'{teacher}.')}") for name in names]
        trained = next((name for name in names if self._weights[name].requires_grad), None)
        missing = next((name for name, weight in zip(names, sources, strict=True) if weight is None), None)
        rest = "the model has no such part with parameters. Check the name" if not names else ""
        if trained is not None:
            rest = f"{trained} is trained as well. Add teachers = ({teacher!r},) to the task"
        elif missing is not None:
            rest = f"{source} has no parameter like {missing}. Name the part that it is a copy of"
        if rest:
            raise ConfigurationError(f"task: context.follow({teacher!r}, {source!r}): {rest}.", key="task")
        return [
            (self._weights[name], weight) for name, weight in zip(names, sources, strict=True) if weight is not None
        ]

    def _exchange(self, part: str) -> None:
        """Drop the gradients of other parameters than this part's, and exchange those."""
        names = {*self.parts[part]}
        if not self._is_checked:
            self._is_checked = True
            self._refuse_trained_teacher()
        for name, parameter in self._weights.items():
            if name not in names:
                parameter.grad = None
        parallel = self.parallel
        if not parallel.is_replica:
            parallel.synchronize(self.optimizer)
        elif parallel.data_size > 1:
            weights = [self._weights[name] for name in self.parts[part]]
            exchange_gradients(weights, lambda flat: parallel.reduce(flat).div_(parallel.data_size))

    def _refuse_trained_teacher(self) -> None:
        """Raises ConfigurationError for a gradient of what no optimizer has."""
        trained = {name for names in self.parts.values() for name in names}
        for name, parameter in self._weights.items():
            if name not in trained and (parameter.grad is not None or parameter.requires_grad):
                raise ConfigurationError(
                    f"task: {name}, which is frozen, gets a gradient in the first update, so it would be trained. "
                    "Remove what sets its requires_grad, or leave it out of teachers and parameters.freeze.",
                    key="task",
                )


class ThroughRoot:
    """A model whose parts are called through its root, around whose forward pass a strategy gathers the weights."""

    def __init__(self, root: nn.Module, path: str = ""):
        self._root, self._path = root, path

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        root = self._root
        if not self._path:
            return root(*inputs, **named)
        root.forward = root.get_submodule(self._path).__call__
        try:
            return root(*inputs, **named)
        finally:
            del root.forward

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._root.get_submodule(self._path), name)
        return ThroughRoot(self._root, f"{self._path}.{name}".lstrip(".")) if isinstance(value, nn.Module) else value
