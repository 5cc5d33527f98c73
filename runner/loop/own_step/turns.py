"""An update's micro-batches, each in its own run of the task's step, which take turns with the optimizers."""

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from manyheads.runner.data.rank.batches import Batch
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.loop.own_step.context import StepContext
from manyheads.runner.parallel.rank.passes import ForwardResult
from manyheads.runner.parallel.rank.structure import shapes
from manyheads.runner.task.rank.task import Task

if TYPE_CHECKING:
    from manyheads.runner.loop.own_step.update import SteppingUpdate


class StepRun:
    """The task's step for one micro-batch, from one loss to the next. ``loss``: the sum of its losses so far, ()."""

    def __init__(self, update: "SteppingUpdate", batch: Batch, context: StepContext):
        self.batch, self.context, self._task = batch, context, update.scores.task
        self.loss: Tensor | None = None
        self.outputs: Any = None
        self._names = update.parts
        self._generator = self._task.step(update.called, batch.inputs, context)
        if not inspect.isgenerator(self._generator):
            raise self._refusal(
                f"returns {type(self._generator).__name__} and yields no loss, so no optimizer would step. Write "
                "yield loss, or, with several optimizers, yield 'name', loss"
            )

    def advance(self) -> tuple[str, Tensor] | None:
        """The next loss, (), with the name of its optimizer; None at the end. Raises ConfigurationError."""
        try:
            yielded = next(self._generator)
        except StopIteration as ended:
            self.outputs = ended.value
            if self.loss is None:
                raise self._refusal("has yielded no loss, so no optimizer would step. Let it yield one") from None
            if self.outputs is None and type(self._task).statistics is not Task.statistics:
                raise self._refusal("returns nothing for its statistics. End it with return outputs") from None
            return None
        name, loss = yielded if isinstance(yielded, tuple) and len(yielded) == 2 else ("", yielded)
        if name not in self._names:
            named = f"yields a loss for the optimizer {name!r}" if name else "yields a loss without an optimizer's name"
            there = ", ".join(filter(None, self._names))
            remedy = (
                f"Write yield name, loss with one of {there}" if there else "Write yield loss, or set optimizer=several"
            )
            raise self._refusal(f"{named}. {remedy}")
        if not isinstance(loss, Tensor) or loss.ndim:
            raise self._refusal(f"yields {shapes(loss)} as a loss, where a single number is needed. Yield its mean")
        if self.context.training and not loss.requires_grad:
            of = f" of the optimizer {name}" if name else ""
            raise self._refusal(f"yields a loss{of} that depends on no trained parameter. Remove no_grad() or detach()")
        self.loss = loss.detach() if self.loss is None else self.loss + loss.detach()
        return name, loss

    def _refusal(self, rest: str) -> ConfigurationError:
        return ConfigurationError(f"task: {type(self._task).__name__}.step {rest}.", key="task")


class Turns:
    """The runs of an update's micro-batches, which are at the same loss. Raises ConfigurationError if they differ."""

    def __init__(self, update: "SteppingUpdate", batches: Sequence[Batch], *, number: int):
        self._update, self._steps = update, update.micro_steps([*batches])
        self.runs = []
        for batch in batches:
            is_last = batch is batches[-1]
            context = StepContext(update, batch, number, training=True, of=len(batches), is_last=is_last)
            self.runs.append(StepRun(update, batch, context))

    def take(self) -> str | None:
        """Forward and backward of all micro-batches up to their next loss; its optimizer's name, None at the end."""
        update, names = self._update, set[str | None]()
        for run in self.runs:
            last = run is self.runs[-1]
            with update.accumulating(last=last):
                with update.precision.autocast():
                    turn = run.advance()
                names.add(None if turn is None else turn[0])
                if turn is not None:
                    self._backward(run, turn[1], last=last)
        if len(names) > 1:
            raise ConfigurationError(
                f"task: {type(update.scores.task).__name__}.step yields losses for other optimizers in another "
                "micro-batch of the same update. Decide by context.step, not by the batch.",
                key="task",
            )
        return names.pop()

    def _backward(self, run: StepRun, loss: Tensor, *, last: bool) -> None:
        precision, optimizer = self._update.precision, self._update.optimizer
        weight = 1 / len(self.runs) if run.context.gathered else self._steps.weight(run.batch)
        objective = loss if isinstance(weight, (int, float)) and weight == 1 else loss * weight
        with precision.scaling(objective, optimizer, last=last) as scaled:
            scaled.backward()

    def passes(self) -> list[ForwardResult]:
        """The results of the micro-batches, whose loss is the sum of those of all turns."""
        scores = self._update.scores
        with torch.no_grad():
            return [scores.passed(run.loss, run.outputs, run.batch) for run in self.runs if run.loss is not None]
