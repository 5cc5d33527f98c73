"""What a rank does for an explanation: updates as in training, and each part of them alone, in turns."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from itertools import islice
from typing import Any, NoReturn

import torch

from manyheads.runner.checkpoint.rank.checkpoints import Checkpoints
from manyheads.runner.commands.explain.limits import BATCH, EXCHANGE, LOADER, OPTIMIZER, PASSES, UPDATE
from manyheads.runner.commands.explain.rank.exchanges import Exchanges, summed
from manyheads.runner.data.rank.batches import Batch
from manyheads.runner.data.rank.rng import seed_everything
from manyheads.runner.loop import rank_main as worker
from manyheads.runner.loop.build import build
from manyheads.runner.loop.clock import wait_for_all
from manyheads.runner.loop.determinism import operations_named
from manyheads.runner.loop.session import Session
from manyheads.runner.loop.trainer import Trainer
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.parallel.rank.parallel import Parallel
from manyheads.runner.parallel.rank.structure import call, held_bytes
from manyheads.runner.run.heartbeat import Heartbeat
from manyheads.runner.run.run_folder import RunFolder

ROUNDS = 5
SECONDS = 0.3  # at least, that each part is repeated in each round
FEWEST = 1  # repetitions, for updates that take longer
LONGEST_PAUSE = 2.0  # seconds
ENDLESS = 10**9
Part = Callable[[int], float]  # repeats a part of an update so many times; returns the seconds of the slowest rank


def main(path: str) -> NoReturn:
    """Be one rank of a run that is explained. Ends the process."""
    worker.main(path, work=work)


@operations_named()
def work(run: RunConfig, parallel: Parallel, folder: RunFolder, heartbeat: Heartbeat) -> None:
    """Measure, and write result.json with the seconds of each part in each round under ``floors``."""
    trainer = endless(build(run, parallel, folder, heartbeat, is_silent=True))
    session = Session(trainer, run, checkpoints=Checkpoints(folder, every=0, keep=0), folder=folder)
    with closing(trainer):
        seed_everything(run.seed + 1 + parallel.data_rank)
        session.update.prime(trainer.train.example, warm_up=trainer.settings.warm_up)
        parts = Parts(trainer, run)
        session.conclude(floors=measured(parts.known(), trainer))


def endless(trainer: Trainer) -> Trainer:
    """The trainer, which no longer ends by itself; its schedule stays as it is."""
    trainer.settings = replace(trainer.settings, epochs=ENDLESS, total_steps=ENDLESS, last_step=ENDLESS)
    return trainer


def measured(parts: dict[str, Part], trainer: Trainer) -> dict[str, list[float]]:
    """Seconds of one repetition of each part, by round; the parts take turns, so that drift reaches all of them."""
    seconds = {name: part(FEWEST) / FEWEST for name, part in parts.items()}  # which also warms up
    found: dict[str, list[float]] = {name: [] for name in parts}
    for _ in range(ROUNDS):
        for name, part in parts.items():
            count = max(FEWEST, round(SECONDS / max(seconds[name], 1e-9)))
            seconds[name] = part(count) / count
            found[name].append(seconds[name])
        if trainer.stop.signal is not None:
            break
    return found


class Parts:
    """A rank's updates, and what they consist of, each of which can be repeated alone."""

    def __init__(self, trainer: Trainer, run: RunConfig):
        self.trainer, self.update, self.parallel, self.run = trainer, trainer.update, trainer.update.parallel, run
        self.update.enter_epoch(0)
        self.kept: list[Batch] = next(trainer.updates(trainer.train.epoch(0)))
        self._ahead = 2 * run.data.num_workers  # batches that loader processes may have ready

    def known(self) -> dict[str, Part]:
        """Those that this strategy has."""
        found = {UPDATE: self.updates, LOADER: self.load, BATCH: self._repeated(self.update_with_kept)}
        if not (self.run.parallel.mixes_communication or self.run.parallel.replicates):
            found[PASSES] = self._repeated(self.passes)
        if not self.update.parallel.backward_steps:
            found[OPTIMIZER] = self.steps
        if (exchange := self._exchange()) is not None:
            found[EXCHANGE] = self._repeated(exchange)
        return found

    # -- as in training ------------------------------------------------------------------------------

    def updates(self, count: int) -> float:
        """Updates by the training loop itself, its logging included."""
        progress, clock = self.trainer.progress, Stopwatch(self.parallel)
        first = progress.step + 1 + self._ahead
        progress.ended = None

        def watch(step: int) -> bool:
            if step == first:
                clock.start()
            elif step == first + count:
                clock.stop()
                progress.ended = "explain"
            return False

        self.trainer.fit(lambda *, best: None, due_after_step=watch)
        return clock.seconds

    # -- alone ---------------------------------------------------------------------------------------

    def load(self, count: int) -> float:
        """The batches of updates, prepared on the device."""
        batches, clock = self._endless(), Stopwatch(self.parallel)
        for _ in islice(batches, 1 + self._ahead):
            self.trainer.heartbeat.beat()
        clock.start()
        for _ in islice(batches, count):
            self.trainer.heartbeat.beat()
        seconds = clock.stop()
        time.sleep(min(LONGEST_PAUSE, self._ahead * seconds / count))  # until loader processes have filled their queues
        return seconds

    def update_with_kept(self) -> None:
        """An update whose batch is in memory."""
        self.update(self.kept, number=self.trainer.progress.step, wants_norm=False)

    def passes(self) -> None:
        """Forward and backward passes of an update, without any exchange.

        Gradients are returned and not accumulated, so no hook that would exchange them is called.
        """
        model, steps = self.parallel.unwrap(self.update.model), self.update.micro_steps(self.kept, used=False)
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        for batch in self.kept:
            with self.update.precision.autocast():
                objective, _ = steps.objective(call(model, batch.inputs), batch)
            torch.autograd.grad(objective, trained, allow_unused=True)

    def steps(self, count: int) -> float:
        """Steps of the optimizer with the same gradients, and a learning rate of 0."""
        update, clock = self.update, Stopwatch(self.parallel)
        update.compute_gradients(self.kept)
        update.precision.unscale(update.optimizer)
        for group in update.optimizer.param_groups:
            group["lr"] = 0.0  # until the next update sets it
        for number in range(count + 1):
            if number == 1:
                clock.start()
            with self.parallel.stepping(update.optimizer):
                update.precision.step(update.optimizer)
            self.trainer.heartbeat.beat()
        seconds = clock.stop()
        update.precision.zero_grad(update.optimizer)
        return seconds

    def _exchange(self) -> Callable[[], Any] | None:
        """What repeats the exchanges of an update; None if there are none, or they cannot be repeated."""
        if self.parallel.world_size == 1:
            return None
        sizes: list[int] = []
        own = self.parallel.unwrap(self.update.model)

        def look() -> None:
            sizes.append(held_bytes(self.parallel.gradient_tensors(own, self.update.optimizer)))

        with Exchanges() as exchanges:
            self.update(self.kept, number=self.trainer.progress.step, wants_norm=False, on_gradients=look)
        if not exchanges.is_complete:
            return None
        return exchanges.again if exchanges else summed(self.parallel, sizes[0])

    def _repeated(self, part: Callable[[], Any]) -> Part:
        def repeat(count: int) -> float:
            clock = Stopwatch(self.parallel)
            part()
            clock.start()
            for _ in range(count):
                part()
                self.trainer.heartbeat.beat()
            return clock.stop()

        return repeat

    def _endless(self) -> Iterator[list[Batch]]:
        epoch = self.trainer.progress.epoch
        while True:
            yield from self.trainer.updates(self.trainer.train.epoch(epoch))


class Stopwatch:
    """Times what all ranks do, from the moment at which all have begun to the slowest one's end."""

    def __init__(self, parallel: Parallel):
        self._parallel = parallel
        self._began = self.seconds = 0.0

    def start(self) -> None:
        wait_for_all(self._parallel)
        self._began = time.perf_counter()

    def stop(self) -> float:
        """The seconds since the start, the same on all ranks."""
        wait_for_all(self._parallel)
        own = torch.tensor([time.perf_counter() - self._began], dtype=torch.float64, device=self._parallel.device)
        self.seconds = self._parallel.reduce(own, "max").item()
        return self.seconds


if __name__ == "__main__":
    import sys

    main(sys.argv[1])
