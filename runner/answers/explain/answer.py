"""The answer of the command ``explain``, as text and as a picture."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.table import Table
from rich.text import Text

from manyheads.runner.answers.measure.limits import (
    BUSY,
    LOADER,
    PASSES,
    UPDATE,
    WHAT,
    Limit,
    Seconds,
    milliseconds,
    variation,
    waits_for_data,
)
from manyheads.runner.charts.picture_file import render
from manyheads.runner.config.candidates import Candidate
from manyheads.runner.machine import invocation
from manyheads.runner.machine.console import Console
from manyheads.runner.option.rules import DATA
from manyheads.runner.run.answer import Answer
from manyheads.runner.run.crowding import crowded_runs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Colours that colour-blind readers can tell apart; a part has the same colour within an update and alone.
COLORS = {
    "data": "#e69f00",
    "compute": "#0072b2",
    "communication": "#cc79a7",
    "optimizer": "#009e73",
    "logging": "#444444",
}
ALONE = {
    LOADER: COLORS["data"],
    "batch": "#56b4e9",
    PASSES: COLORS["compute"],
    "exchange": COLORS["communication"],
    "optimizer": COLORS["optimizer"],
}


@dataclass(frozen=True)
class Explanation(Answer):
    """What limits the speed of a run, measured on this machine."""

    folder: Annotated[Path, "the folder of the measurement"]
    ranks: int
    seconds: Annotated[dict[str, Seconds], "seconds of an update, and of each of its parts measured alone"]
    spent: Annotated[dict[str, float], "seconds of an update by what the rank was doing, as in result.json's time"]
    limit: Limit
    tries: Annotated[list[Candidate], "what may make it faster at the same numerics, and what cannot be tried here"]
    base: Annotated[list[str] | None, "the overrides that were explained; null for a recorded run"]
    crowding: Annotated[str | None, "what other programs used meanwhile; null if the ranks had their cores"] = None

    @classmethod
    def of(
        cls,
        folder: Path,
        rounds: Mapping[str, Sequence[float]],
        time: Mapping[str, float],
        *,
        ranks: int,
        candidates: Sequence[Candidate],
        base: list[str] | None,
    ) -> "Explanation":
        """The answer from a measurement.

        ``rounds``: seconds by name, in each round; ``time``: seconds of all updates, by what the rank was doing.
        """
        seconds = {name: Seconds.of(values) for name, values in rounds.items()}
        scale = seconds[UPDATE].median / (sum(time.values()) or 1.0)
        spent = {part: scale * value for part, value in time.items() if value}
        return cls(folder, ranks, seconds, spent, Limit.of(seconds), [*candidates], base, crowded_runs(folder))

    def show(self) -> None:
        console = Console()
        console.print(self._table())
        for line in self._lines():
            console.print(Text(line), soft_wrap=True)

    def _table(self) -> Table:
        table = Table(title="Each part measured alone, in ms per update", title_justify="left")
        table.add_column("")
        for name in ("median", "lowest", "highest"):
            table.add_column(name, justify="right")
        for name, seconds in self.seconds.items():
            cells = (WHAT[name], *map(milliseconds, (seconds.median, seconds.low, seconds.high)))
            table.add_row(*map(Text, cells), style="bold" if name == self.limit.name else "")
        return table

    def _lines(self) -> Iterator[str]:
        spent = ", ".join(f"{part} {milliseconds(value)}" for part, value in self.spent.items())
        yield f"An update's time as training reports it (ms): {spent}."
        yield self.limit.sentence
        if waits := waits_for_data(self.seconds, self.spent.get(DATA, 0.0)):
            yield waits
        if self.crowding is not None:
            yield f"Measured while {self.crowding}"
        elif (varied := variation(self.seconds)) > BUSY:
            yield f"Updates took up to {100 * varied:.0f} % longer in one round than in another: the machine was busy."
        parts = {self.limit.part, *([DATA] if waits else [])}
        worth = [candidate for candidate in self.tries if candidate.change and candidate.part in parts]
        if worth:
            keys = dict.fromkeys(candidate.key for candidate in worth)
            changes = (" or ".join(candidate.change for candidate in worth if candidate.key == key) for key in keys)
            yield f"Worth trying: {'; '.join(changes)}."
        if worth and self.base is not None:
            judge = invocation.command("judge", *self.base, "--change", worth[0].change)
            yield f"To find out whether it helps: {judge}"

    def picture(self, *, form: str) -> bytes:
        """A picture of the parts of an update, and of what each takes alone. ``form``: "png" or "svg"."""
        return render(self._fill, size=(9, 1.6 + 0.4 * len(self.seconds)), form=form)

    def _fill(self, figure: "Figure") -> None:
        axes = figure.subplots()
        left = 0.0
        for part, seconds in self.spent.items():
            marks: Any = {"left": left, "height": 0.7, "color": COLORS.get(part, "#56646e"), "label": part}
            axes.barh(0, 1000 * seconds, **marks)
            left += 1000 * seconds
        for row, (name, measured) in enumerate(self.seconds.items()):
            if name != UPDATE:
                axes.barh(row, 1000 * measured.median, height=0.7, color=ALONE[name])
            axes.plot([1000 * measured.low, 1000 * measured.high], [row, row], color="#222222", linewidth=1.2)
            axes.annotate(
                f" {milliseconds(measured.median)}",
                (1000 * max(measured.median, measured.high), row),
                va="center",
                fontsize=9,
            )
        axes.set_yticks(range(len(self.seconds)), [WHAT[name] for name in self.seconds])
        axes.invert_yaxis()
        axes.tick_params(axis="y", length=0)
        axes.set_xlim(0, 1150 * max(measured.high for measured in self.seconds.values()))
        axes.set_xlabel("ms per update; lines: range over the rounds")
        axes.legend(loc="upper left", bbox_to_anchor=(0, -0.22), ncols=5, fontsize=9, frameon=False)
        figure.suptitle(self.limit.sentence, x=0.01, ha="left", fontsize=11, wrap=True)
