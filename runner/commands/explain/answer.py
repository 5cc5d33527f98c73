"""What the command ``explain`` answers."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from rich.console import Console
from rich.table import Table
from rich.text import Text

from manyheads.runner.commands.explain.limits import (
    BUSY,
    UPDATE,
    WHAT,
    Limit,
    Seconds,
    milliseconds,
    variation,
    waits_for_data,
)
from manyheads.runner.config.candidates import Candidate
from manyheads.runner.machine import invocation
from manyheads.runner.option.rules import DATA
from manyheads.runner.run.answer import Answer


@dataclass(frozen=True)
class Explanation(Answer):
    """What limits the speed of a run, measured on this machine."""

    folder: Annotated[Path, "of the measurement"]
    ranks: int
    seconds: Annotated[dict[str, Seconds], "of an update, and of each part of it alone that this strategy has"]
    spent: Annotated[dict[str, float], "seconds of an update by what the rank was doing, as in result.json's time"]
    limit: Limit
    tries: Annotated[list[Candidate], "what may make it faster at the same numerics, and what cannot be tried here"]
    base: Annotated[list[str] | None, "the overrides that were explained; null for a recorded run"]

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
        """``rounds``: seconds by name and round; ``time``: seconds of all updates by what they were spent on."""
        seconds = {name: Seconds.of(each) for name, each in rounds.items()}
        scale = seconds[UPDATE].median / (sum(time.values()) or 1.0)
        spent = {part: scale * value for part, value in time.items() if value}
        return cls(folder, ranks, seconds, spent, Limit.of(seconds), [*candidates], base)

    def show(self) -> None:
        console = Console(highlight=False)
        console.print(self._table())
        for line in self._lines():
            console.print(Text(line), soft_wrap=True)

    def _table(self) -> Table:
        table = Table(title="Each part measured alone, in ms per update", title_justify="left")
        table.add_column("")
        for name in ("median", "lowest", "highest"):
            table.add_column(name, justify="right")
        for name, each in self.seconds.items():
            cells = (WHAT[name], *map(milliseconds, (each.median, each.low, each.high)))
            table.add_row(*map(Text, cells), style="bold" if name == self.limit.name else "")
        return table

    def _lines(self) -> Iterator[str]:
        spent = ", ".join(f"{part} {milliseconds(value)}" for part, value in self.spent.items())
        yield f"An update's time as training reports it (ms): {spent}."
        yield self.limit.sentence
        if waits := waits_for_data(self.seconds, self.spent.get(DATA, 0.0)):
            yield waits
        if (found := variation(self.seconds)) > BUSY:
            yield f"Updates took up to {100 * found:.0f} % longer in one round than in another: the machine was busy."
        parts = {self.limit.part, *([DATA] if waits else [])}
        worth = [each for each in self.tries if each.change and each.part in parts]
        if worth:
            keys = dict.fromkeys(each.key for each in worth)
            changes = (" or ".join(each.change for each in worth if each.key == key) for key in keys)
            yield f"Worth trying: {'; '.join(changes)}."
        if worth and self.base is not None:
            judge = invocation.command("judge", *self.base, "--change", worth[0].change)
            yield f"To find out whether it helps: {judge}"
