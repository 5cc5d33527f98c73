"""Predictions, and what was measured afterwards."""

from dataclasses import dataclass
from typing import Annotated

from rich.table import Table
from rich.text import Text

from manyheads.runner.answers.measure.limits import BUSY, milliseconds
from manyheads.runner.answers.scale.simulator.network import Link
from manyheads.runner.answers.scale.simulator.predict import PredictedUpdate
from manyheads.runner.machine.console import Console
from manyheads.runner.run.answer import Answer


@dataclass(frozen=True)
class Compared:
    """A prediction, and what was measured. Seconds are of one update; low and high are an 80 % interval."""

    start: Annotated[int, "the number of ranks from whose measurement the prediction starts"]
    devices: int
    seconds: float
    low: float
    high: float
    measured: Annotated[float, "seconds of an update, measured after the prediction"]

    @classmethod
    def of(cls, start: int, found: PredictedUpdate, measured: float) -> "Compared":
        return cls(start, found.devices, found.seconds, found.low, found.high, measured)

    @property
    def error(self) -> float:
        """The error of the predicted time, relative to the measured one."""
        return self.seconds / self.measured - 1

    @property
    def is_within(self) -> bool:
        return self.low <= self.measured <= self.high


@dataclass(frozen=True)
class Validated(Answer):
    """Predictions of a run on several ranks of this machine, compared with measurements."""

    parallel: str
    launcher: str
    cpus: Annotated[float, "the quota of each rank in CPUs"]
    network: Annotated[Link, "the measured network between ranks"]
    slowdown: Annotated[float, "measured seconds that computing loses for each second of a concurrent exchange"]
    varied: Annotated[float, "the largest fraction by which updates took longer in one round than in another"]
    rows: list[Compared]

    @property
    def mean_error(self) -> float:
        """The mean absolute error of the predicted times, relative to the measured ones."""
        return sum(abs(each.error) for each in self.rows) / len(self.rows)

    def show(self) -> None:
        title = f"{self.parallel} by {self.launcher}, {self.cpus:.3g} CPUs for each rank; predicted, then measured"
        table = Table(title=title, title_justify="left")
        for name in ("from", "ranks", "predicted ms", "80 % interval", "measured ms", "error", "within"):
            table.add_column(name, justify="right")
        for each in self.rows:
            table.add_row(
                str(each.start),
                str(each.devices),
                milliseconds(each.seconds),
                f"{milliseconds(each.low)} to {milliseconds(each.high)}",
                milliseconds(each.measured),
                f"{100 * each.error:+.1f} %",
                "yes" if each.is_within else "no",
            )
        console = Console()
        console.print(table)
        for line in self._lines():
            console.print(Text(line), soft_wrap=True)

    def _lines(self) -> list[str]:
        within = sum(each.is_within for each in self.rows)
        lines = [f"Mean absolute error {100 * self.mean_error:.1f} %; {within} of {len(self.rows)} within."]
        if self.varied > BUSY:
            lines.append(
                f"Measured updates took up to {100 * self.varied:.0f} % longer in one round than in another: the "
                "machine was busy, and these errors say little of the predictions."
            )
        return lines
