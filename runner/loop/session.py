"""One session of a run: resume from the last checkpoint if there is one, train or evaluate, record the result."""

import gc
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from types import MappingProxyType
from typing import Any

from manyheads.runner.checkpoint.background_save import FinishedSave
from manyheads.runner.checkpoint.rank.checkpoints import CheckpointStore
from manyheads.runner.data.rank.rng import seed_everything
from manyheads.runner.loop.build import build
from manyheads.runner.loop.determinism import operations_named
from manyheads.runner.loop.diagnosis import diagnosed, memory_explained
from manyheads.runner.loop.guards.guard import Restart
from manyheads.runner.loop.non_finite import data_named
from manyheads.runner.loop.reporter import forget_peaks, peak_memory_mb, reserved_memory_mb
from manyheads.runner.loop.results import result_of, summary, tested
from manyheads.runner.loop.state import TrainingState, adapt_progress
from manyheads.runner.loop.trainer import Trainer
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.parallel.rank.parallel import Parallel
from manyheads.runner.run.checkpoint_places import StateDict
from manyheads.runner.run.heartbeat import Heartbeat
from manyheads.runner.run.json_types import ResultJson
from manyheads.runner.run.run_folder import RunFolder

NO_MEMORY: Mapping[str, Any] = MappingProxyType({})
NOTABLE = 0.05  # seconds of waiting for a checkpoint that are reported


class Session:
    """A trainer together with its run folder."""

    def __init__(self, trainer: Trainer, run: RunConfig, *, checkpoints: CheckpointStore, folder: RunFolder):
        self.trainer, self.run, self.checkpoints, self.folder = trainer, run, checkpoints, folder
        self.update, self.parallel, self.state = trainer.update, trainer.update.parallel, TrainingState(trainer)

    def train(self, *, seed: int, state: StateDict | None, memory: Mapping[str, Any] = NO_MEMORY) -> None:
        """Train to the end, or until a signal asks to stop. ``state``: the checkpoint to resume from.

        ``memory``: what guards are told if an earlier session returned to that checkpoint. Raises Restart to return.
        """
        try:
            with self._reported():
                self._train(seed=seed, state=state, memory=memory)
        finally:
            self.checkpoints.give_up()  # of a save that a failure has interrupted
            self.trainer.reporter.close()

    def evaluate(self) -> None:
        """Evaluate the loaded weights without training."""
        with self._reported():
            self.start()
            measured = self.trainer.evaluate()
            if measured is not None:
                self.trainer.progress.metrics = measured
            self.conclude()

    @contextmanager
    def _reported(self) -> Iterator[None]:
        """A context in which a failure is reported to the parent at once, which limits the time for what follows."""
        data, trainer = self.run.data, self.run.trainer
        memory = memory_explained(data.batch_size // self.parallel.data_size, trainer.grad_accumulation)
        try:
            with memory, diagnosed(self.update, (data.image_size, trainer.resize_from)), data_named(self.trainer):
                yield
        except Restart as restart:
            self.wait_for_save()  # of the checkpoint to return to
            self.trainer.reporter.display.say(str(restart))
            raise
        except BaseException as error:
            self.trainer.heartbeat.fail(error)
            raise

    def _train(self, *, seed: int, state: StateDict | None, memory: Mapping[str, Any]) -> None:
        trainer = self.trainer
        # What the model draws, as for dropout, differs between ranks that have different samples.
        seed_everything(seed + 1 + self.parallel.data_rank)
        self.update.scores.proves_reduction = state is None
        self.update.prime(trainer.train.example, warm_up=trainer.settings.warm_up)
        forget_peaks(self.parallel.devices)  # those from choosing algorithms
        if state is not None:
            self.state.restore(state, seed=seed)
            if state["is_elsewhere"]:
                adapt_progress(trainer, self.checkpoints, state)
        has_caught_up = self.state.rejoining.catch_up(self.checkpoints, seed=seed)
        if has_caught_up and trainer.done:
            self.save(best=False)
        for guard in self.update.guards:
            if guard.key is not None and guard.key in memory:
                guard.restarted(memory[guard.key])
        if state is not None or has_caught_up:
            trainer.reporter.display.say(f"resuming from step {trainer.progress.step}")
        settings, samples = trainer.settings, trainer.evaluation.loader.samples
        evaluates = bool(settings.evaluate_every or settings.evaluate_steps)
        trainer.monitor.begin(trainer.progress, samples=samples, evaluates=evaluates)
        self.start()
        trainer.fit(self.save, due_after_step=self.checkpoints.due_after_step)
        self.wait_for_save()
        if self.parallel.finish(self.state.rejoining):
            self.conclude(**tested(self.state, self.folder))

    def start(self) -> None:
        """Tell the observers that the run starts or is resumed."""
        for observer in self.trainer.observers:
            observer.start(self.trainer.progress)

    def save(self, *, best: bool) -> None:
        """Write a checkpoint if one is due: by the settings, because it is the best, or because the run ends here."""
        trainer, progress = self.trainer, self.trainer.progress
        at_epoch = progress.epoch_step == 0 and not self.checkpoints.due_after_epoch(progress.epoch)
        if not self.checkpoints.enabled or (at_epoch and not best and not trainer.done and trainer.stop.signal is None):
            return
        started = time.perf_counter()
        for guard in self.update.guards:
            guard.before_save()
        self.wait_for_save()
        for observer in trainer.observers:
            observer.saving()
        if best:
            self.state.rejoining.keep_best()
        say = trainer.reporter.display.say
        self._note(self.checkpoints.save(self.state, self.parallel, step=progress.step, best=best, say=say))
        trainer.heartbeat.beat()
        progress.checkpoint_seconds += time.perf_counter() - started

    def wait_for_save(self) -> None:
        """Wait for a checkpoint that is still being written, and report it."""
        self._note(self.checkpoints.wait_for_save())

    def _note(self, finished: FinishedSave | None) -> None:
        """Tell the observers that a checkpoint is complete, if one is."""
        if finished is None:
            return
        if finished.waited > NOTABLE:
            sentence = f"waited {finished.waited:.1f} s for the checkpoint of step {finished.step}"
            self.trainer.reporter.display.say(f"{sentence}, which was still being written")
        for observer in self.trainer.observers:
            observer.saved()

    def conclude(self, **findings: Any) -> None:
        """Write result.json with ``findings``, and show the table; on rank 0."""
        digest = self.state.weights_sha256()
        devices = self.parallel.devices
        memory = self.parallel.gather([(peak_memory_mb(device), reserved_memory_mb(device)) for device in devices])
        for observer in self.trainer.observers:
            findings |= observer.concluding()
        reporter = self.trainer.reporter
        result = result_of(self.trainer, digest, memory, **findings) if self.parallel.records else ResultJson()
        if self.parallel.records:
            self.folder.write_json(self.folder.result, result)
            reporter.recorder.end(result)
            reporter.display.stop()
            reporter.display.table(*summary(result, self.update.scores, self.folder))
        for observer in self.trainer.observers:
            observer.ended(result)


@operations_named()
def work(run: RunConfig, parallel: Parallel, folder: RunFolder, heartbeat: Heartbeat) -> None:
    """Do a rank's work: train, or only evaluate, as the config says. Raises ConfigurationError."""
    evaluate_only, memory = run.trainer.evaluate_only, NO_MEMORY
    while True:
        checkpoints = CheckpointStore.of(folder, run.checkpoint)
        state = None if evaluate_only else checkpoints.last(otherwise=run.checkpoint.resume, ranks=parallel)
        with memory_explained(run.data.batch_size // parallel.data_size, run.trainer.grad_accumulation):
            trainer = build(run, parallel, folder, heartbeat, state)
        session = Session(trainer, run, checkpoints=checkpoints, folder=folder)
        try:
            with closing(trainer):
                if evaluate_only:
                    return session.evaluate()
                return session.train(seed=run.seed, state=state, memory=memory)
        except Restart as restart:
            memory = restart.memory
        del trainer, session, checkpoints, state
        gc.collect()  # the model and all that refers to it, before another one is built
