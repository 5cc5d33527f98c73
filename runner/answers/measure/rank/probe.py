"""A rank's work for parity: a few of the trainer's updates, each inspected before and after it is applied."""

from contextlib import nullcontext
from itertools import chain, islice
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from manyheads.runner.answers.measure.rank.constructed import Constructed
from manyheads.runner.answers.measure.rank.difference import digests
from manyheads.runner.answers.measure.rank.measuring import program, unrecorded
from manyheads.runner.answers.measure.rank.sides import Baseline, ComparedSide, Digests, StepsTaken
from manyheads.runner.answers.measure.rank.trace import Trace
from manyheads.runner.answers.measure.steps_task import ParityTask, read_task
from manyheads.runner.data.rank.batches import Batch
from manyheads.runner.data.rank.rng import seed_everything
from manyheads.runner.loop.determinism import operations_named
from manyheads.runner.loop.guards.guard import observed_gradients
from manyheads.runner.loop.prepare import prepare
from manyheads.runner.loop.session import Session
from manyheads.runner.loop.trainer import Trainer
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.parallel.rank.parallel import Parallel
from manyheads.runner.run.heartbeat import Heartbeat
from manyheads.runner.run.run_folder import RunFolder


class Casts(TorchDispatchMode):
    """Counts the casts in the context from double precision to a lower one."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func.overloadpacket.__name__ == "_to_copy" and args[0].dtype == torch.float64:
            self.count += out.is_floating_point() and out.dtype != torch.float64
        return out


@operations_named()
def work(run: RunConfig, parallel: Parallel, folder: RunFolder, heartbeat: Heartbeat) -> None:
    """Take the steps that the folder's task asks for. Raises ConfigurationError."""
    task, constructed = read_task(folder), Constructed()
    with Casts() if task.counts_casts else nullcontext() as casts:
        prepared = prepare(run, parallel, convert=constructed.convert)
        constructed.complete(prepared.model)
        built = digests(prepared.model)  # before a strategy gives all ranks the same weights
        with unrecorded(run, parallel, folder, heartbeat, prepared) as session:
            side = Baseline(session, constructed) if task.baseline is None else ComparedSide(session, task)
            take_steps(session, task, side, built, casts)


def take_steps(
    session: Session, task: ParityTask, side: Baseline | ComparedSide, digests: Digests, casts: Casts | None
) -> None:
    """Take the task's steps, and write result.json with what was found under ``parity``.

    ``digests``: digests of the model's initial weights on this rank.
    """
    seed = session.run.seed
    trainer, parallel = session.trainer, session.parallel
    side.start(digests)
    seed_everything(seed + 1 + parallel.data_rank)
    session.update.prime(trainer.train.example)
    epochs = (trainer.updates(trainer.train.epoch(epoch)) for epoch in range(trainer.settings.epochs))
    updates = islice(chain.from_iterable(epochs), min(task.steps, trainer.settings.last_step))
    for step, batches in enumerate(updates):
        side.before(step)
        seed_everything(seed + 1 + parallel.data_rank)
        follows = step == 0 and task.trace and not parallel.shares_model  # else a module has a part of its tensors
        trace = Trace(parallel.unwrap(trainer.update.model), parallel.devices) if follows else None
        with trace.following() if trace else nullcontext():
            taken = take(session, batches, [*digests["parameter"]])
        if trace is not None:
            side.traced(trace, _samples(trainer))
        side.after(step, taken)
        trainer.heartbeat.beat()
        if trainer.stop.signal is not None:
            break
    counted = {} if casts is None else {"casts": casts.count}
    session.conclude(
        parity={"steps": trainer.progress.step, "ranks": parallel.world_size, **side.findings(), **counted}
    )


def take(session: Session, batches: list[Batch], parameters: list[str]) -> StepsTaken:
    """Take one update, and return what it computed. Waits for the device.

    ``parameters``: names of the complete model's; if ranks share a model, only the first one has them.
    """
    trainer, update = session.trainer, session.update
    model = session.parallel.unwrap(update.model)
    gradients: dict[str, Tensor | None] = {}

    def look() -> None:
        owned = dict(zip(update.names, update.precision.parameters(update.optimizer), strict=True))
        gathered = session.parallel.layout.gather({n: p.grad for n, p in owned.items() if p.grad is not None})
        names = gathered if session.parallel.shares_model else owned
        gradients.update((name, _copy(gathered[name])) for name in gathered)  # a step's optimizers take turns
        for name in names:
            gradients.setdefault(name, None)

    update.enter_training()
    with observed_gradients(update.guards, look):
        step = update(batches, number=trainer.progress.step, wants_norm=False)
    trainer.count(batches, step)
    trainer.windows.close()
    windows, flags = trainer.windows.collect(trainer.stop.flags())
    trainer.stop.apply(flags)
    (sums,) = (window.sums for window in windows)
    trainer.progress.samples += int(sums.count)
    weights = session.state.weights()
    return StepsTaken(
        loss=sums.whole_loss / sums.counted if sums.counted else float("nan"),
        gradients=gradients,
        weights={name: _copy(weights[name]) for name in parameters if name in weights},
        buffers={name: _copy(buffer) for name, buffer in model.named_buffers()},
    )


def _copy(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", copy=True)


def _samples(trainer: Trainer) -> list[list[int]]:
    """The samples in the first update's micro-batches; none for one that only keeps this rank in step."""
    requests = islice(trainer.train.sampler.epoch(0), trainer.settings.grad_accumulation)
    return [request.indices.tolist() if request.count else [] for request in requests]


main = program(work, __name__)
