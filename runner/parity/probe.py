"""The rank's side: a few steps of the trainer's, each looked at before it is applied and after."""

from collections.abc import Iterator
from contextlib import nullcontext
from itertools import islice

from torch import nn

from runner.attempt import Attempt
from runner.data.batches import Batch
from runner.parity.difference import digests
from runner.parity.sides import Baseline, Compared, Taken
from runner.parity.task import Task
from runner.parity.trace import Trace
from runner.rng import seed_everything
from runner.run_folder import RunFolder
from runner.trainer import Trainer


class Probe:
    """Takes a task's steps with everything in place, as ``build`` has assembled it."""

    def __init__(self, task: Task, folder: RunFolder):
        self._task, self._folder = task, folder

    def look(self, model: nn.Module) -> None:
        """The rank's own model as it was made, before a strategy has given all ranks the same weights."""
        self._digests = digests(model)

    def run(self, attempt: Attempt, *, seed: int) -> None:
        """Take the steps, and write result.json with what was found under ``parity``."""
        task, trainer = self._task, attempt.trainer
        side = Baseline(attempt, task, self._folder) if task.baseline is None else Compared(attempt, task)
        side.start(self._digests)
        seed_everything(seed + 1 + attempt.parallel.rank)
        trainer.prime()
        steps = min(task.steps, trainer.settings.last_step)
        for step, batches in enumerate(islice(_updates(trainer), steps)):
            side.before(step)
            seed_everything(seed + 1 + attempt.parallel.rank)
            model = attempt.parallel.unwrap(trainer.model)
            trace = Trace(model, attempt.parallel.devices()) if step == 0 and task.trace else None
            with trace.following() if trace else nullcontext():
                taken = take(attempt, batches)
            if trace is not None:
                side.traced(trace, _samples(trainer))
            side.after(step, taken)
            trainer.heartbeat.beat()
            if trainer.stop.signal is not None:
                break
        attempt.conclude(
            parity={"steps": trainer.progress.step, "ranks": attempt.parallel.world_size, **side.findings()}
        )


def take(attempt: Attempt, batches: list[Batch]) -> Taken:
    """One update, as ``Trainer.update`` does it, and what it computed. Waits for the device."""
    trainer = attempt.trainer
    model = attempt.parallel.unwrap(trainer.model)
    trainer.model.train()
    before = trainer.kept_buffers()
    outputs = trainer.accumulate(batches, trainer.progress.step)
    names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    owned = zip(names, trainer.precision.parameters(trainer.optimizer), strict=True)
    gradients = {name: None if p.grad is None else p.grad.detach().to("cpu", copy=True) for name, p in owned}
    _, is_skipped = trainer.step(before, wants_norm=False)
    trainer.note(batches, outputs, is_skipped=is_skipped)
    trainer.intervals.meter.close()
    (sums,), flags = trainer.intervals.meter.collect(trainer.stop.flags())
    trainer.stop.hear(flags)
    trainer.progress.step += 1
    trainer.progress.samples += int(sums.count)
    weights = attempt.weights()
    return Taken(
        loss=sums.loss / sums.count if sums.count else float("nan"),
        gradients=gradients,
        weights={name: weights[name].detach().to("cpu", copy=True) for name, _ in model.named_parameters()},
        buffers={name: buffer.detach().to("cpu", copy=True) for name, buffer in model.named_buffers()},
    )


def _updates(trainer: Trainer) -> Iterator[list[Batch]]:
    """The micro-batches of each update of the run, epoch after epoch."""
    for epoch in range(trainer.settings.epochs):
        yield from trainer.updates(trainer.train.epoch(epoch))


def _samples(trainer: Trainer) -> list[list[int]]:
    """Which samples the micro-batches of the first update hold; none where they only keep step with other ranks."""
    requests = islice(trainer.train.sampler.epoch(0), trainer.settings.grad_accumulation)
    return [request.indices.tolist() if request.count else [] for request in requests]
