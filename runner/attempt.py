"""One attempt at a run: go on from its last checkpoint if there is one, train or evaluate, say what came of it."""

import signal
from typing import Any

from torch import Tensor

from runner.checkpoint import Checkpoints, load_model, load_optimizer, weights_sha256
from runner.header import device_name
from runner.parallel.base import Parallel
from runner.progress import Progress
from runner.reporter import peak_memory_mb
from runner.rng import get_state, seed_everything, set_state
from runner.run_folder import RunFolder
from runner.trainer import Trainer


class Attempt:
    """A trainer with the run folder that it works for."""

    def __init__(self, trainer: Trainer, *, checkpoints: Checkpoints, folder: RunFolder):
        self.trainer, self.checkpoints, self.folder = trainer, checkpoints, folder
        self.parallel: Parallel = trainer.parallel

    def train(self, *, seed: int, state: dict[str, Any] | None) -> None:
        """Train to the end, or until a signal asks to stop. ``state``: the checkpoint to go on from."""
        trainer, reporter = self.trainer, self.trainer.reporter
        seed_everything(seed + 1 + self.parallel.rank)  # what the model draws, as for dropout, differs between ranks
        try:
            trainer.prime()
            if state is not None:
                self.restore(state, seed=seed)
                reporter.display.say(f"goes on from step {trainer.progress.step}")
            trainer.fit(self.save, due_after_step=self.checkpoints.due_after_step)
        finally:
            reporter.display.stop()
            reporter.recorder.close()
        self.conclude()

    def evaluate(self) -> None:
        """Evaluate the loaded weights, train nothing."""
        trainer = self.trainer
        measured = trainer.evaluate()
        if measured is not None:
            trainer.progress.metrics = measured
        self.conclude()

    def restore(self, state: dict[str, Any], *, seed: int) -> None:
        """Put everything where the checkpoint left it. Raises ConfigurationError for another model's or optimizer's."""
        trainer = self.trainer
        self.load(state)
        trainer.progress = Progress.from_state(state["progress"])
        if len(state["rng"]) == self.parallel.world_size:
            set_state(state["rng"][self.parallel.rank])
        else:  # other ranks than before: new streams, the same in every such attempt
            seed_everything(seed + 1 + self.parallel.rank + trainer.progress.step)

    def load(self, state: dict[str, Any]) -> None:
        """Bring back what ``learned`` gave. Raises ConfigurationError for another model's or optimizer's."""
        trainer = self.trainer
        model = self.parallel.unwrap(trainer.model)
        load_model(model, state["model"], state["source"])
        trainer.precision.weights_loaded(model, state["model"])
        load_optimizer(trainer.optimizer, state["optimizer"], state["source"])
        self.parallel.restored(trainer.model, trainer.optimizer)
        if state["precision"].keys() == trainer.precision.state_dict().keys():  # else it was of another precision
            trainer.precision.load_state_dict(state["precision"])

    def learned(self) -> dict[str, Any]:
        """All that updates have changed, but for how far they have come."""
        return {
            "model": self.weights(),
            "optimizer": self.trainer.optimizer.state_dict(),
            "precision": self.trainer.precision.state_dict(),
        }

    def save(self, *, best: bool) -> None:
        """A checkpoint, when one is due: by the settings, because it is the best, or because the run ends here."""
        trainer, progress = self.trainer, self.trainer.progress
        at_epoch = progress.epoch_step == 0 and not self.checkpoints.due_after_epoch(progress.epoch)
        if not self.checkpoints.enabled or (at_epoch and not best and not trainer.done and trainer.stop.signal is None):
            return
        rng = self.parallel.gather(get_state())
        if self.parallel.rank == 0:
            state = {
                **self.learned(),
                "scheduler": {"step": progress.step},  # learning rates are a function of the update's number
                "progress": progress.state_dict(),
                "rng": rng,
                "tables": trainer.reporter.recorder.position(),
            }
            self.checkpoints.save(state, step=progress.step, best=best)
        trainer.heartbeat.beat()

    def conclude(self, **findings: Any) -> None:
        """Rank 0 writes result.json, ``findings`` included, and shows the table."""
        progress, stopped = self.trainer.progress, self.trainer.stop.signal
        memory = self.parallel.gather([peak_memory_mb(device) for device in self.parallel.devices()])
        if self.parallel.rank > 0:
            return
        result = {
            "status": "completed" if stopped is None else "interrupted",
            "signal": stopped,
            "epochs": progress.epoch,
            "steps": progress.step,
            "samples_seen": progress.samples,
            "device": device_name(self.parallel.device),
            "train_seconds": progress.train_seconds + progress.seconds,
            "time": progress.time(progress.seconds),
            "samples_per_second": progress.samples_per_second,
            "peak_memory_mb": [peak for rank in memory for peak in rank],
            "metrics": progress.metrics,
            "objective": self.objective(),
            "best": progress.best,
            "weights_sha256": weights_sha256(self.weights()),
            "corrupt_samples": progress.corrupt,
            "skipped_steps": progress.skipped,
            **findings,
        }
        self.folder.write_json(self.folder.result, result)
        self.trainer.reporter.display.table(*summary(result, self.folder))

    def weights(self) -> dict[str, Tensor]:
        """What was trained, under the user's own names."""
        return self.trainer.precision.weights(self.parallel.unwrap(self.trainer.model))

    def objective(self) -> float | None:
        """The monitored metric of the best epoch, or of the evaluation."""
        monitor = self.trainer.reporter.monitor
        return (self.trainer.progress.best or self.trainer.progress.metrics).get(monitor)


def summary(result: dict[str, Any], folder: RunFolder) -> tuple[str, dict[str, str]]:
    """Title and rows of the table at the end."""
    title = (
        "completed" if result["status"] == "completed" else f"interrupted by {signal.Signals(result['signal']).name}"
    )
    rows = {}
    if result["best"]:
        rows["best"] = f"epoch {result['best']['epoch']}: {_measured(result['best'])}"
    rows["last" if result["best"] else "metrics"] = _measured(result["metrics"])
    if result["samples_per_second"]:
        rows["speed"] = f"{result['samples_per_second']:,.0f} samples/s; {result['train_seconds']:.1f} s of training"
    if any(result["time"].values()):
        rows["time"] = shares(result["time"])
    rows["memory"] = " + ".join(f"{memory:,.0f}" for memory in result["peak_memory_mb"]) + " MB at most, by device"
    kinds = {"unreadable samples": result["corrupt_samples"], "updates": result["skipped_steps"]}
    if skipped := [f"{count:,} {kind}" for kind, count in kinds.items() if count]:
        rows["skipped"] = ", ".join(skipped)
    rows["weights"] = f"sha256 {result['weights_sha256'][:16]}..."
    rows["results"] = str(folder)
    if result["status"] == "interrupted":
        rows["go on"] = f"python -m runner resume {folder}"
    return title, rows


def shares(seconds: dict[str, float]) -> str:
    """What took most first, in percent of the whole; what took less than half a percent is left out."""
    whole = sum(seconds.values())
    found = sorted(((value / whole, part) for part, value in seconds.items()), reverse=True)
    return ", ".join(f"{part} {share:.0%}" for share, part in found if share >= 0.005)


def _measured(metrics: dict[str, Any]) -> str:
    parts = []
    for split in ("val", "train"):
        if metrics.get(f"{split}_loss") is not None:
            parts.append(f"{split} loss {metrics[f'{split}_loss']:.4f}")
            if metrics.get(f"{split}_acc1") is not None:
                parts.append(f"accuracy {metrics[f'{split}_acc1']:.2f}% (top-5 {metrics[f'{split}_acc5']:.2f}%)")
            break
    if metrics.get("val_samples") is not None:
        parts.append(f"on {metrics['val_samples']:,} samples")
    return ", ".join(parts) or "nothing measured"
