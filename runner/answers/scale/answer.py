"""The answer of the command ``scale``, as text and as a picture."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.table import Table
from rich.text import Text

from manyheads.runner.answers.measure.limits import BUSY, milliseconds
from manyheads.runner.answers.scale.recorded import Checkpoints
from manyheads.runner.answers.scale.simulator.replay import Assumptions, Parts
from manyheads.runner.charts.picture_file import render
from manyheads.runner.errors import ExitCode
from manyheads.runner.machine.console import Console
from manyheads.runner.provenance.predicted import LEDGER, Record
from manyheads.runner.run.answer import Answer
from manyheads.runner.wording import counted, size_in_words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HELD = "of 64 rows of published series, 51 were in such intervals."
OWN = "#222222"  # the color of the run in the picture
NAMES = {
    "computing": "computing",
    "optimizer": "the optimizer's step",
    "exchange": "communication",
    "stragglers": "waiting for the slowest rank",
    "data": "loading data",
    "idle": "idle stages of the pipeline",
}


@dataclass(frozen=True)
class Help:
    """The part that would speed up updates most if it were twice as good."""

    what: str
    factor: Annotated[float, "how much faster updates would be"]


@dataclass(frozen=True)
class Scaled:
    """The run on a number of devices. Seconds are of one update; low and high are an 80 % interval."""

    devices: int
    seconds: float
    low: float
    high: float
    samples_per_second: float
    efficiency: Annotated[float, "samples per second and device, relative to the measured device"]
    batch: Annotated[int, "samples of an update, of all devices"]
    parts: Annotated[Parts, "seconds of an update by what a rank is doing"]
    limit: Annotated[str, "what takes the most of an update: computing, optimizer, exchange, stragglers, data or idle"]
    help: Help
    checkpoint: Annotated[float | None, "seconds of checkpoints per update, besides; null if the run recorded none"]
    device_hours: Annotated[float, "device hours for a million samples, checkpoints included"]
    cost: Annotated[float | None, "the cost of a million samples; null without a price"]
    memory: Annotated[int | None, "bytes on the device that needs most; null if it can't be estimated"]
    fits: Annotated[bool | None, "whether that fits into the device's memory; null if it is unknown"]


@dataclass(frozen=True)
class OtherStrategy:
    """The efficiency of another strategy with its default settings, by the number of devices."""

    parallel: str
    color: str | None
    devices: list[int]
    efficiency: list[float]


@dataclass(frozen=True)
class Scale(Answer):
    """What a run would take on other numbers of devices, predicted from a measurement of one device."""

    folder: Annotated[Path, "the folder of the measurement"]
    parallel: str
    network: str
    device: str
    measured: Annotated[float, "seconds of an update on the measured device"]
    varied: Annotated[float, "the largest fraction by which updates took longer in one round than in another"]
    rows: list[Scaled]
    others: list[OtherStrategy]
    unpredicted: Annotated[dict[str, str], "strategies that cannot be predicted, and why"]
    earlier: Annotated[Record | None, "how earlier predictions compare with later runs; null if there are none"]
    checkpoints: Annotated[Checkpoints | None, "those that the recorded run wrote; null if there are none"]
    spread: Annotated[float, "how much longer than the fastest rank the mean one takes, as a fraction of its passes"]

    @property
    def exit_code(self) -> ExitCode:
        return ExitCode.NO if any(row.fits is False for row in self.rows) else ExitCode.DONE

    def show(self) -> None:
        console = Console()
        console.print(self._table())
        for line in self._lines():
            console.print(Text(line), soft_wrap=True)

    def _table(self) -> Table:
        table = Table(
            title=f"{self.parallel} on {self.device}, {self.network}; predicted from one device", title_justify="left"
        )
        for name in ("devices", "ms/update", "80 % interval", "samples/s", "efficiency", "GB"):
            table.add_column(name, justify="right")
        for row in self.rows:
            table.add_row(
                str(row.devices),
                milliseconds(row.seconds),
                f"{milliseconds(row.low)} to {milliseconds(row.high)}",
                f"{row.samples_per_second:,.0f}",
                f"{100 * row.efficiency:.0f} %",
                "?" if row.memory is None else f"{row.memory / 1e9:.3g}",
            )
        return table

    def _lines(self) -> Iterator[str]:
        if self.varied > BUSY:
            yield (
                f"Measured updates took up to {100 * self.varied:.0f} % longer in one round than in another: the "
                "machine was busy, and this prediction is worth little."
            )
        yield f"Predicted, not measured: {HELD}"
        if self.earlier is not None:
            yield (
                f"Of {counted(self.earlier.runs, 'predicted run')} in {LEDGER}, {self.earlier.within} were within "
                f"their intervals; the mean error is {100 * self.earlier.mean_error:.1f} %."
            )
        if self.checkpoints is not None:
            size = size_in_words(self.checkpoints.bytes)
            who = "of which each rank writes its part" if self.checkpoints.sharded else "which one rank writes"
            yield f"Checkpoints, {who}, have {size}; their time is computed from that of the recorded run."
        if self.spread > Assumptions.spread:
            yield (
                f"Ranks differ as in the recorded run: on average, a rank takes {100 * self.spread:.1f} % of its "
                "passes longer than the fastest one."
            )
        for row in self.rows:
            spent = ", ".join(
                f"{NAMES[name]} {100 * value / row.seconds:.0f} %"
                for name, value in vars(row.parts).items()
                if value >= 0.005 * row.seconds
            )
            yield f"{row.devices} devices: {spent}."
            if row.checkpoint is not None:
                yield f"  Checkpoints take {1000 * row.checkpoint:.3g} ms more for each update."
            yield f"  What would help most is {row.help.what}: {row.help.factor:.2f} times as fast."
            cost = "" if row.cost is None else f", which cost {row.cost:.3g}"
            yield f"  A million samples take {row.device_hours:.3g} device hours{cost}."
            if row.fits is False and row.memory is not None:
                yield f"  The largest needs {size_in_words(row.memory)}, which is more than the device has."

    def picture(self, *, form: str) -> bytes:
        """A picture of efficiency against devices: of the run, with its interval, and of the other strategies.

        ``form``: "png" or "svg".
        """
        return render(self._fill, size=(8, 4.6), form=form)

    def _fill(self, figure: "Figure") -> None:
        axes = figure.subplots()
        devices = [row.devices for row in self.rows]
        efficiency = [100 * row.efficiency for row in self.rows]
        low = [100 * row.efficiency * row.seconds / row.high for row in self.rows]
        high = [100 * row.efficiency * row.seconds / row.low for row in self.rows]
        for line in self.others:
            values = [100 * fraction for fraction in line.efficiency]
            axes.plot(line.devices, values, marker="o", markersize=3, color=line.color, label=line.parallel)
        axes.fill_between(devices, low, high, color=OWN, alpha=0.12, linewidth=0)
        axes.plot(devices, efficiency, marker="o", color=OWN, linewidth=2, label=f"{self.parallel}, as configured")
        axes.set_xscale("log", base=2)
        axes.set_xticks(devices, [str(count) for count in devices])
        axes.set(ylim=(0, max(105.0, *high)), xlabel="devices", ylabel="efficiency, %")
        axes.legend(loc="best", fontsize=9, frameon=False)
        figure.suptitle(f"{self.device}, {self.network}; shaded: 80 % interval", x=0.01, ha="left", fontsize=11)
