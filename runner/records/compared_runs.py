"""The answer of ``report``, and of a sweep that has ended: the comparison of runs as data."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from manyheads.runner.run.answer import Answer
from manyheads.runner.run.json_schema import TEXT_ONLY
from manyheads.runner.run.run_folder import RunFolder


@dataclass(frozen=True)
class ComparedJob:
    """A job of a sweep, averaged over its repeats, or a run."""

    job: str
    folder: Annotated[Path, "of its first completed run"]
    state: Annotated[str, "completed, failed, skipped, interrupted, pruned, running or pending"]
    values: Annotated[dict[str, str], "the swept keys"]
    measures: Annotated[dict[str, float | str | None], "by column of comparison.csv"]
    remarks: Annotated[list[str], "what is needed to interpret its numbers"]


@dataclass(frozen=True)
class ComparedRuns(Answer):
    """The comparison of a sweep's jobs, or of any runs, in the order of the table: best first, or by baseline."""

    title: str
    folder: Annotated[Path | None, "of the sweep; null if the runs are not of one"]
    headline: Annotated[str, "how many jobs completed"]
    metric: Annotated[str, "the metric that is compared"]
    objective: Annotated[str, "the metric by which rows are ordered, unless speed is compared"]
    compares_speed: Annotated[bool, "whether backends or layouts were swept"]
    jobs: list[ComparedJob]
    notes: Annotated[list[str], "differences, and doubts about the comparison"]
    reasons: Annotated[list[str], "why jobs failed or were skipped"]
    files: Annotated[list[Path], "that were written"]
    table: Annotated[Callable[[], None] | None, TEXT_ONLY] = None  # prints it; None if that has been done

    def show(self) -> None:
        if self.table is None:
            return
        self.table()
        for path in self.files:
            print(f"wrote {RunFolder(path)}")
