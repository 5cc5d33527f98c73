"""The answer of the command ``record``: as data, in the terminal, and as a page with a picture."""

import io
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from rich.table import Table
from rich.text import Text

from manyheads.runner.answers.record.evidence import (
    CLOCKS,
    SIGNIFICANT,
    RecordEvidence,
    RecordTarget,
    Spread,
    p_of_difference,
)
from manyheads.runner.charts.html_page import html_page
from manyheads.runner.errors import ExitCode
from manyheads.runner.machine.console import Console
from manyheads.runner.run.answer import Answer
from manyheads.runner.run.json_schema import TEXT_ONLY
from manyheads.runner.run.run_folder import RunFolder


@dataclass(frozen=True)
class RecordedRecipe:
    """A recipe and the results of its runs."""

    label: Annotated[str, "the overrides by which it differs from the others"]
    signature: Annotated[str, "the signature of its config"]
    reaches: Annotated[bool, "whether its mean reaches the target by more than chance would explain"]
    value: Annotated[Spread, "values of the target's metric"]
    seconds: Annotated[Spread, "seconds by the record's clock"]
    p_of_target: Annotated[float | None, "probability of such a mean if the true one just missed the target"]
    p_of_same_seconds: Annotated[float | None, "probability of such seconds if the first recipe were as fast"]


@dataclass(frozen=True)
class RecordedRuns(Answer):
    """Many runs of recipes, of which the first should reach a target; or the check of a record."""

    target: RecordTarget
    clock: Annotated[str, "which seconds count: training or wall"]
    recipes: list[RecordedRecipe]
    files: Annotated[list[Path], "the files that were written"]
    wrong: Annotated[list[str] | None, "claims that do not follow from the runs; null if none were checked"]
    again: Annotated[str, "the command that times the record here; empty unless it was checked"]
    record: Annotated[RecordEvidence, TEXT_ONLY]

    @classmethod
    def of(
        cls, evidence: RecordEvidence, files: list[Path], *, again: str = "", wrong: Sequence[str] | None = None
    ) -> "RecordedRuns":
        """The answer about a record. ``files``: that were written; ``wrong``: what a check has found."""
        wrong = None if wrong is None else [*wrong]
        return cls(evidence.target, evidence.clock, recipes_of(evidence), files, wrong, again, evidence)

    @property
    def exit_code(self) -> ExitCode:
        holds = self.recipes[0].reaches if self.wrong is None else not self.wrong
        return ExitCode.DONE if holds else ExitCode.NO

    def show(self) -> None:
        console = Console()
        table = Table(title=str(self.target), title_justify="left")
        for number, name in enumerate(COLUMNS):
            table.add_column(name, justify="left" if number in (0, 2) else "right", overflow="fold")
        for row in rows(self.record):
            table.add_row(*map(Text, row))
        console.print(table)
        for sentence in sentences(self.record):
            console.print(Text(sentence))
        for path in self.files:
            print(f"wrote {RunFolder(path)}")  # as a user would type it
        for line in self.wrong or ():
            print(f"does not follow from the runs: {line}")
        if self.wrong == []:
            print("all claims follow from the runs.")
            print(f"To time it here: {self.again}")


COLUMNS = ("recipe", "runs", "reached", "mean ± sd", "p", "seconds ± sd (lowest–highest)")

TEMPLATE = Path(__file__).with_name("record.html.j2")


def recipes_of(record: RecordEvidence) -> list[RecordedRecipe]:
    """The recipe of each contender, with what follows from its runs."""
    first, recipes = record.contenders[0], []
    for contender in record.contenders:
        p = contender.findings(record.target)["p_of_target"]
        recipes.append(
            RecordedRecipe(
                label=contender.label,
                signature=contender.signature,
                reaches=p is not None and p < SIGNIFICANT,
                value=Spread.of(contender.values),
                seconds=Spread.of(contender.seconds),
                p_of_target=p,
                p_of_same_seconds=None if contender is first else p_of_difference(contender.seconds, first.seconds),
            )
        )
    return recipes


def rows(record: RecordEvidence) -> list[tuple[str, ...]]:
    """A row of the table for each recipe, with the cells that COLUMNS names."""
    return [
        (
            recipe.label,
            str(recipe.value.n),
            "yes" if recipe.reaches else "no",
            f"{recipe.value.mean:.3f} ± {recipe.value.deviation:.3f}",
            "" if recipe.p_of_target is None else f"{recipe.p_of_target:.2g}",
            f"{recipe.seconds.mean:.4g} ± {recipe.seconds.deviation:.2g} "
            f"({recipe.seconds.low:.4g}–{recipe.seconds.high:.4g})",
        )
        for recipe in recipes_of(record)
    ]


def sentences(record: RecordEvidence) -> list[str]:
    """Sentences on the findings, and on how they were measured."""
    first, *others = recipes_of(record)
    mean = f"mean {first.value.mean:.3f} in {first.value.n} runs"
    reached = f"{first.label} reaches {record.target}: {mean}, in {first.seconds.mean:.3f} s."
    lines = [reached if first.reaches else f"{first.label} is not shown to reach {record.target}: {mean}."]
    for other in others:
        p, ratio = other.p_of_same_seconds, other.seconds.mean / first.seconds.mean
        chance = "" if p is None else f" (p = {p:.2g} if both take the same time)"
        lines.append(f"{other.label} takes {ratio:.2f} times as long in the same session{chance}.")
    lines.append(f"Seconds are of the {record.clock} clock: {CLOCKS[record.clock][1]}.")
    lines.append(
        f"p: the probability of a mean this good if the recipe just missed {record.target} (one-sided t-test); a "
        f"record needs p < {SIGNIFICANT}. Every run counts."
    )
    return lines


def as_page(record: RecordEvidence) -> str:
    """The self-contained page of a record, as HTML."""
    verdict, *others = sentences(record)
    machine = record.contenders[0].machine
    where = {key: value for key, value in machine.items() if key != "versions"}
    where |= {key: value for key, value in machine.get("versions", {}).items() if value}
    return html_page(
        TEMPLATE,
        heading=str(record.target),
        kind="a record",
        charts=(),
        data={},
        headline=verdict,
        facts={
            key: shlex.join(map(str, value)) if isinstance(value, list) else str(value) for key, value in where.items()
        },
        sentences=others,
        titles=COLUMNS,
        rows=rows(record),
        picture=_picture(record),
    )


def _picture(record: RecordEvidence) -> str:
    """An SVG plot of the metric against seconds, with a point for each run and a line at the target."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    for contender, marker in zip(record.contenders, "os^Dv*" * len(record.contenders), strict=False):
        axes.scatter(contender.seconds, contender.values, marker=marker, alpha=0.7, label=contender.label)
    axes.axhline(record.target.value, color="0.4", linestyle="--", linewidth=1, label=str(record.target))
    axes.set(xlabel=f"seconds ({record.clock} clock)", ylabel=record.target.metric)
    axes.legend(loc="best", fontsize="small")
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None})
    text = out.getvalue()
    return text[text.index("<svg") :]
