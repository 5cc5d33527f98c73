"""What the command ``record`` answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from rich.console import Console
from rich.table import Table
from rich.text import Text

from manyheads.runner.commands.record import print_record
from manyheads.runner.commands.record.evidence import Record, Target
from manyheads.runner.commands.record.statistics import Spread, p_of_difference
from manyheads.runner.errors import ExitCode
from manyheads.runner.run.answer import Answer
from manyheads.runner.run.json_schema import TEXT_ONLY
from manyheads.runner.run.run_folder import RunFolder


@dataclass(frozen=True)
class RecordedRecipe:
    """A recipe and what its runs came to."""

    label: Annotated[str, "the overrides by which it differs from the others"]
    signature: Annotated[str, "of its config"]
    reaches: Annotated[bool, "whether its mean reaches the target, and by more than chance would explain"]
    value: Annotated[Spread, "of the target's metric"]
    seconds: Annotated[Spread, "by the record's clock"]
    p_of_target: Annotated[float | None, "probability of such a mean if the true one just missed the target"]
    p_of_same_seconds: Annotated[float | None, "probability of such seconds if the first recipe were as fast"]


@dataclass(frozen=True)
class RecordedRuns(Answer):
    """Many runs of recipes, the first of which is to reach a target; or the check of a record."""

    target: Target
    clock: Annotated[str, "which seconds count: training or wall"]
    recipes: list[RecordedRecipe]
    files: Annotated[list[Path], "that were written"]
    wrong: Annotated[list[str] | None, "claims that do not follow from the runs; null if none were checked"]
    again: Annotated[str, "the command that times the record here; empty unless it was checked"]
    record: Annotated[Record, TEXT_ONLY]

    @classmethod
    def of(
        cls, found: Record, files: list[Path], *, again: str = "", wrong: Sequence[str] | None = None
    ) -> "RecordedRuns":
        """The record as data. ``wrong``: what a check has found."""
        first = found.contenders[0]
        recipes = [
            RecordedRecipe(
                label=each.label,
                signature=each.signature,
                reaches=print_record.reaches(found, each),
                value=Spread.of(each.values),
                seconds=Spread.of(each.seconds),
                p_of_target=each.findings(found.target)["p_of_target"],
                p_of_same_seconds=None if each is first else p_of_difference(each.seconds, first.seconds),
            )
            for each in found.contenders
        ]
        return cls(found.target, found.clock, recipes, files, None if wrong is None else [*wrong], again, found)

    @property
    def exit_code(self) -> ExitCode:
        holds = self.recipes[0].reaches if self.wrong is None else not self.wrong
        return ExitCode.DONE if holds else ExitCode.NO

    def show(self) -> None:
        console = Console(highlight=False)
        table = Table(title=str(self.target), title_justify="left")
        for number, name in enumerate(print_record.COLUMNS):
            table.add_column(name, justify="left" if number in (0, 2) else "right", overflow="fold")
        for row in print_record.rows(self.record):
            table.add_row(*map(Text, row))
        console.print(table)
        for sentence in print_record.sentences(self.record):
            console.print(Text(sentence))
        for path in self.files:
            print(f"wrote {RunFolder(path)}")  # named as a person would
        for line in self.wrong or ():
            print(f"does not follow from the runs: {line}")
        if self.wrong == []:
            print("all claims follow from the runs.")
            print(f"To time it here: {self.again}")
