"""Callbacks, metrics and loggers of a user's own, named by ``_target_``."""

import json
from pathlib import Path

import torch

from manyheads.runner.callbacks.callback import Callback
from manyheads.runner.logger.logger import Logger
from manyheads.runner.metrics.metric import Metric


class Diary(Callback):
    """Writes down what it is told, to <run>/diary-<rank>.jsonl. ``title``: built from a nested _target_."""

    def __init__(self, *, title=None, every_rank: bool = False):
        self.title, self.every_rank = title, every_rank

    def on_start(self, run):
        self.path = Path(run.folder) / f"diary-{run.rank}.jsonl"
        self.write("start", run.step, type(run.model).__name__, type(self.title).__name__)

    def on_update(self, step):
        self.write("update", step)

    def on_epoch(self, row):
        self.write("epoch", row["epoch"], row["val_loss"])

    def on_evaluation_batch(self, outputs, batch, ids):
        self.write("evaluation", list(outputs.shape), batch[1].tolist(), list(ids))

    def on_checkpoint(self, path):
        self.write("checkpoint", path.name)

    def on_end(self, result):
        self.write("end", result.get("status"))

    def write(self, *what):
        with open(self.path, "a") as file:
            file.write(json.dumps(what) + "\n")


class Predictions(Callback):
    """Collects what is predicted for each sample of the last evaluation, in <run>/predictions-<rank>.json."""

    every_rank = True

    def on_start(self, run):
        self.path = Path(run.folder) / f"predictions-{run.rank}.json"
        self.found = []

    def on_evaluation_batch(self, outputs, batch, ids):
        self.found += zip(map(int, ids), outputs.tolist(), batch[1].tolist(), strict=True)

    def on_end(self, result):
        self.path.write_text(json.dumps(self.found))


class Failing(Callback):
    def on_update(self, step):
        if step == 3:
            raise ArithmeticError("enough")


class Worst(Metric):
    """The share of samples of the worst class that were found."""

    def __init__(self, name, *, classes: int, gain=None):
        super().__init__(name, label="worst class", unit="%")
        self.shapes = {"found": (classes,), "all": (classes,)}
        self.classes, self.gain = classes, gain

    def statistics(self, outputs, batch):
        targets = batch[1]
        found = targets[outputs.argmax(1) == targets]
        return {name: torch.bincount(t, minlength=self.classes) for name, t in (("found", found), ("all", targets))}

    def value(self, sums):
        seen = sums["all"] > 0
        return 100 * float((sums["found"][seen] / sums["all"][seen]).min()) if bool(seen.any()) else None


class Lines(Logger):
    """A line for each row, in <run>/lines.txt."""

    def start(self, run):
        self.file = open(run.folder / "lines.txt", "a")  # noqa: SIM115

    def step(self, row):
        self.file.write(f"step {row['step']}\n")

    def end(self, result):
        self.file.write(f"{result['status']}\n")

    def close(self):
        self.file.close()


class Unreachable(Logger):
    def start(self, run):
        raise ConnectionError("no route to the tracker")
