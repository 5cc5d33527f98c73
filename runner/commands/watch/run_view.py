"""The view of a run in progress, from the files in its folder: progress, speed and curves."""

import math
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.text import Text

from manyheads.launchers.sweep.console import COLOURS
from manyheads.runner.commands.watch.terminal_curves import Beside, Curve, Plot
from manyheads.runner.errors import printable
from manyheads.runner.machine import invocation
from manyheads.runner.records.load_run import Run, load_run
from manyheads.runner.records.run_summary import Summary, summary
from manyheads.runner.records.shown_metric import metric_of
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.wording import duration, loss_text

RECENT = 50  # rows of steps.csv from which the time left is estimated
ENDED = ("completed", "interrupted", "failed", "skipped", "pruned")
COLUMNS = ("epoch", "step", "loss", "samples_per_second", "time")  # of steps.csv
NOT_METRICS = ("val_seconds", "val_samples", "val_loss")


@dataclass(frozen=True)
class Now:
    """The progress of a run. What is not known is None.

    ``epochs``, ``steps``: at its end. ``metric``: its column, and its last value. ``pace``: seconds per step.
    ``speed``: samples per second. ``left``: seconds until its end.
    """

    epoch: int
    epochs: int | None
    step: int
    steps: int | None
    loss: float | None
    metric: tuple[str, float] | None
    pace: float | None
    speed: float | None
    left: float | None

    @classmethod
    def of(cls, run: Run) -> "Now":
        """The progress in the run's tables. The number of steps is known from max_steps, or after an epoch."""
        rows, epochs = run.steps, run.epochs
        steps, times = list(rows.get("step", ())), list(rows.get("time", ()))
        step = int(steps[-1]) if steps else 0
        total, in_epochs = _length(run)
        column = metric_column(run)
        values = [value for value in epochs.get(column, ()) if math.isfinite(value)]
        left = None
        if len(steps) > 1 and total is not None:
            first = max(0, len(steps) - RECENT)
            left = max(0, total - step) * (times[-1] - times[first]) / max(1, step - steps[first])
        return cls(
            epoch=int(_last(rows.get("epoch")) or _last(epochs.get("epoch")) or 0),
            epochs=in_epochs,
            step=step,
            steps=total,
            loss=_last(rows.get("loss")),
            metric=(column, values[-1]) if values else None,
            pace=(times[-1] - times[-2]) / max(1, step - steps[-2]) if len(steps) > 1 else None,
            speed=_last(rows.get("samples_per_second")),
            left=left,
        )

    def words(self, *, is_running: bool) -> list[str]:
        """The known numbers as text, in the order of the live line that training shows."""
        of_epochs, of_steps = (f"/{limit}" if limit is not None else "" for limit in (self.epochs, self.steps))
        words = [f"epoch {self.epoch}{of_epochs}", f"step {self.step}{of_steps}"]
        words += [f"loss {loss_text(self.loss)}"] if self.loss is not None else []
        words += [f"{self.metric[0]} {self.metric[1]:.4g}"] if self.metric else []
        words += [f"{1000 * self.pace:.3g} ms/step"] if self.pace is not None and is_running else []
        words += [f"{self.speed:,.0f} samples/s"] if self.speed is not None else []
        return words + ([f"{duration(self.left)} left"] if self.left is not None and is_running else [])


def metric_column(run: Run) -> str:
    """The column of epochs.csv by which the run is judged; before its end, the first metric in the table."""
    if metric := metric_of(run):
        return metric.column
    return next((name for name in run.epochs if name.startswith("val_") and name not in NOT_METRICS), "val_loss")


def _length(run: Run) -> tuple[int | None, int | None]:
    """The numbers of steps and epochs at the run's end, as far as known."""
    limits = [run.config.get(f"trainer.{key}") for key in ("max_steps", "stop_after")]
    most = min((limit for limit in limits if isinstance(limit, int)), default=None)
    epochs, updates = run.config.get("trainer.epochs"), int(next(iter(run.epochs.get("step", ())), 0))
    planned = epochs * updates if isinstance(epochs, int) else None
    if not updates or (planned is None and most is None):
        return most, epochs if most is None and isinstance(epochs, int) else None
    total = min(limit for limit in (planned, most) if limit is not None)
    return total, math.ceil(total / updates)


def _last(values: object) -> float | None:
    return float(values[-1]) if values else None  # type: ignore[index]


def run_view(folder: RunFolder) -> tuple[RenderableType, bool]:
    """The current view of a run, and whether it has ended."""
    summarized, run = summary(folder), load_run(folder.path, steps=COLUMNS)
    state = Text.assemble(
        (printable(folder), "bold"), "  ", state_of(summarized.status), f"  {summarized.job}".rstrip()
    )
    words = Text("  ".join(Now.of(run).words(is_running=summarized.status == "running")))
    plots = Beside(
        Plot("training loss, by step", [Curve(run.steps.get("step", ()), run.steps.get("loss", ()))]),
        Plot(f"{metric_column(run)}, by epoch", [metric_curve(run)]),
    )
    next_step = (
        [Text(f"resume it: {invocation.command('resume', folder)}")] if summarized.status == "interrupted" else []
    )
    return Group(state, words, *_reason(summarized), Text(), plots, *next_step), summarized.status in ENDED


def _reason(summarized: Summary) -> list[Text]:
    error = summarized.result.get("error")
    message = error.get("message") if isinstance(error, dict) else None
    return [Text(printable(str(message).partition("\n")[0]), "red")] if message else []


def state_of(status: str) -> tuple[str, str]:
    """A state and its color."""
    return status, COLOURS.get(status, "cyan")


def metric_curve(run: Run, color: str = "cyan") -> Curve:
    """The curve of the run's metric over epochs."""
    return Curve(run.epochs.get("epoch", ()), run.epochs.get(metric_column(run), ()), color)
