"""What the command ``report`` answers, and a sweep that has ended: the comparison as data."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from manyheads.runner.report.columns import file_columns
from manyheads.runner.report.comparison import Comparison, compare
from manyheads.runner.report.print_report import show
from manyheads.runner.report.run_set import gather
from manyheads.runner.run.answer import Answer
from manyheads.runner.run.json_schema import TEXT_ONLY


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
    shown: Annotated[Comparison | None, TEXT_ONLY] = None

    @classmethod
    def of(cls, comparison: Comparison, files: list[Path], *, is_shown: bool) -> "ComparedRuns":
        """The comparison as data. is_shown: whether the text has its table."""
        columns = file_columns(comparison) if comparison.rows else []
        skipped = {"job", "jobs", "state", "folder", "marks", *comparison.swept}
        jobs = [
            ComparedJob(
                job=row.number,
                folder=row.first.run.folder,
                state=row.state,
                values=row.values,
                measures={
                    column.name: None if (value := column.value(row)) == "" else value
                    for column in columns
                    if column.name not in skipped
                },
                remarks=row.marks,
            )
            for row in comparison.rows
        ]
        return cls(
            title=comparison.title,
            folder=comparison.folder,
            headline=comparison.headline,
            metric=comparison.metric.column if comparison.rows else "",
            objective=comparison.objective.column if comparison.rows else "",
            compares_speed=comparison.races,
            jobs=jobs,
            notes=comparison.notes,
            reasons=comparison.reasons,
            files=files,
            shown=comparison if is_shown else None,
        )

    @classmethod
    def of_sweep(cls, sweep: Path) -> "ComparedRuns":
        """The comparison of a sweep that has printed it. Raises ConfigurationError if there is none."""
        files = [path for form in ("csv", "md", "png", "html") if (path := sweep / f"comparison.{form}").exists()]
        return cls.of(compare(gather([str(sweep)])), files, is_shown=False)

    def show(self) -> None:
        if self.shown is None:
            return
        show(self.shown)
        for path in self.files:
            print(f"wrote {path}")
