"""Turns the loop's numbers into rows for the files and lines for the terminal. Only rank 0's writes and prints."""

import logging
import math
import resource
import time

import torch

from manyheads.runner.data.rank.batches import Unreadable
from manyheads.runner.logger.terminal import Display
from manyheads.runner.loop.log_windows import LogRow
from manyheads.runner.loop.meter import Sums, parts
from manyheads.runner.loop.progress import Progress
from manyheads.runner.loop.scores import Scores
from manyheads.runner.loop.utilization import Utilization
from manyheads.runner.parallel.rank.parallel import Parallel
from manyheads.runner.run.json_types import Numbers
from manyheads.runner.run.tables.columns import MFU
from manyheads.runner.run.tables.writer import NullWriter
from manyheads.runner.wording import loss_text

log = logging.getLogger(__name__)
SPLITS = ("train", "val")


class Reporter:
    """Passes a rank's numbers to its recorder and its display.

    ``scores``: what is measured, and which of it makes an epoch the best.
    """

    def __init__(
        self,
        recorder: NullWriter,
        display: Display,
        parallel: Parallel,
        scores: Scores,
        *,
        epochs: int,
        utilization: Utilization | None = None,
    ):
        self.recorder, self.display, self.parallel = recorder, display, parallel
        self.epochs, self.scores, self.utilization = epochs, scores, utilization
        self._row_step = 0  # of the row of steps.csv before the next one
        self.corrupt: set[str] = set()  # paths of samples that could not be read

    def start(self, progress: Progress, *, total: int) -> None:
        """Training starts. ``total``: updates at which it ends."""
        self._row_step = progress.step
        self.display.start(done=progress.step, total=total)

    def phase(self, progress: Progress, *, evaluates: bool = False) -> None:
        """An epoch of training, or its evaluation, starts or continues."""
        self.display.phase(f"epoch {progress.epoch + 1}/{self.epochs}{' evaluating' if evaluates else ''}")

    def interval(self, progress: Progress, end: LogRow) -> None:
        """Write a row of steps.csv over the updates since the last row. ``end``: values of the last update."""
        sums = progress.interval
        values: Numbers = self.scores.of("train", sums) if sums.statistics else {}  # which only some rows come with
        samples_per_second = sums.count * self.parallel.world_size / sums.seconds
        row: Numbers = {
            "epoch": progress.epoch + 1,
            "step": end.step,
            "samples": progress.samples,
            "loss": sums.whole_loss / sums.counted if sums.counted else math.nan,
            "lr": end.lr,
            "grad_norm": float(end.norm),
            "samples_per_second": samples_per_second,
            "data_fraction": sums.data_seconds / sums.seconds,
            "time": round(end.time, 3),
        }
        if self.utilization is not None:
            row[MFU] = self.utilization.mfu(samples_per_second)
        progress.interval = Sums()
        self.recorder.step(row)
        seconds = sums.seconds / self.parallel.world_size / max(1, end.step - self._row_step)
        self._row_step = end.step
        words = {
            "loss": f"loss {loss_text(row['loss'])}",
            "metric": self.scores.live(values),
            "pace": f"{milliseconds(seconds)} ms/step",
            "speed": self._speed(sums, samples_per_second, brief=True),
        }
        self.display.interval(end.step, words)

    def _speed(self, sums: Sums, samples_per_second: float, *, brief: bool = False) -> str:
        """The speed in tokens if the loss averages over tokens, else in samples. ``brief``: 12.3k instead of 12,346."""
        is_of_tokens = self.scores.task.counts_tokens and sums.count
        value = samples_per_second * sums.counted / sums.count if is_of_tokens else samples_per_second
        unit = "tokens/s" if is_of_tokens else "samples/s"
        return f"{thousands(value) if brief else f'{value:,.0f}'} {unit}"

    def epoch(self, progress: Progress, seconds: float, measured: Numbers) -> tuple[Numbers, bool]:
        """Write a row of epochs.csv; returns it, and whether the epoch is the best so far.

        ``seconds``: of training on the slowest rank. The row's checkpoint_seconds are those since the row before,
        including the checkpoint at that epoch's end.
        """
        empty = dict.fromkeys(("val_seconds", *self.scores.names("val"), "val_samples"))
        samples_per_second = progress.sums.count / seconds
        row: Numbers = {
            "epoch": progress.epoch + 1,
            "step": progress.step,
            "started": progress.started,
            "train_seconds": seconds,
            **self.scores.of("train", progress.sums),
            **empty,
            **measured,
            "samples_per_second": samples_per_second,
            "peak_memory_mb": peak_memory_mb(self.parallel.device),
            **{f"{part}_seconds": part_seconds for part, part_seconds in parts(progress.sums, seconds).items()},
            "checkpoint_seconds": progress.checkpoint_seconds,
        }
        names = (*self.scores.names("train"), *self.scores.names("val"), "val_samples")
        progress.metrics = {name: row[name] for name in names}
        self.recorder.epoch(row)
        words = [f"{split} {text}" for split in SPLITS if (text := self.scores.line(split, row))]
        speed = self._speed(progress.sums, samples_per_second)
        self.display.epoch([f"epoch {row['epoch']}/{self.epochs}", *words, speed])
        is_best = self.scores.is_better(row, progress.best)
        if is_best:
            progress.best = {name: row[name] for name in ("epoch", *self.scores.names("val"))}
        return row, is_best

    def evaluation(self, progress: Progress, measured: Numbers) -> tuple[Numbers, bool]:
        """Write a row of evaluations.csv, within an epoch; returns it, and whether it is the best so far."""
        row = {"epoch": progress.epoch + 1, "step": progress.step, "time": round(time.time(), 3), **measured}
        self.recorder.evaluation(row)
        self.display.say(f"step {progress.step}: {self.scores.sentence(row)}")
        is_best = self.scores.is_better(row, progress.best)
        if is_best:
            progress.best = {name: row[name] for name in ("epoch", "step", *self.scores.names("val"))}
        return row, is_best

    def close(self) -> None:
        """Remove the live line and complete the files. Safe to call twice."""
        self.display.stop()
        self.recorder.close()

    def note_corrupt(self, unreadable: list[Unreadable]) -> None:
        """Log samples that cannot be read, each once, and keep their paths for the end."""
        for path in sorted({sample.path for sample in unreadable} - self.corrupt):
            self.corrupt.add(path)
            log.warning("skipping unreadable sample, each time it is due: %s", path)


def milliseconds(seconds: float) -> str:
    """Milliseconds with three significant digits, or all before the decimal point."""
    value = 1000 * seconds
    return f"{value:,.0f}" if value >= 99.95 else f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def thousands(value: float) -> str:
    """A number such as ``9,500``, ``12.3k`` or ``1.23M``."""
    if value >= 1e6:
        return f"{value / 1e6:,.2f}M"
    return f"{value / 1e3:.3g}k" if 1e4 <= value < 999.5e3 else f"{value:,.0f}"


def peak_memory_mb(device: torch.device) -> float:
    """Peak memory of this rank in MB: of tensors on its GPU; without a GPU, the process's resident set."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def reserved_memory_mb(device: torch.device) -> float | None:
    """Peak memory in MB that torch has reserved on this rank's GPU, its cache included; None without a GPU."""
    return torch.cuda.max_memory_reserved(device) / 2**20 if device.type == "cuda" else None


def forget_peaks(devices: list[torch.device]) -> None:
    """Reset the peak memory of GPUs."""
    for device in devices:
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
