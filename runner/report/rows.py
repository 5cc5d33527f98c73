"""Builds the rows of a comparison: one per job, which combines its repeats, seeds and folds."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from manyheads.runner.provenance.predicted import Outcome, outcome
from manyheads.runner.records.keys import grouped, parsed, repeating_keys, short_label, value_of
from manyheads.runner.records.run_set import FOLD, SEED, RunSet, SweepJob
from manyheads.runner.records.shown_metric import ShownMetric, shown_metric, shown_objective
from manyheads.runner.report.measures import Measures, average, measure
from manyheads.runner.run.ledger import EARLIER
from manyheads.runner.run.score_versions import unlike

# States of a job without a completed run, the first that applies counts.
ORDER = ("running", "interrupted", "pruned", "failed", "skipped", "pending")


@dataclass(frozen=True)
class ReportRow:
    """A job with everything that is shown of it. ``values``: by swept key; ``baseline``: its baseline's number."""

    number: str
    jobs: tuple[SweepJob, ...]
    values: dict[str, str]
    state: str
    measures: Measures
    digest: str | None = None  # of the weights; "differs" if repeats with one seed do not agree
    group: int = 0  # rows of one group are compared
    baseline: str | None = None
    speed_up: float | None = None
    efficiency: float | None = None
    is_best: bool = False  # by the objective, if rows are sorted by it
    losses: str = ""  # how they agree with those of the group's other backends

    @cached_property
    def first(self) -> SweepJob:
        """The repeat that represents the others: a completed one if it exists."""
        return self.completed[0] if self.completed else self.jobs[0]

    @property
    def predicted(self) -> Outcome | None:
        """How the run that represents the others compares with its prediction, if it has one."""
        return outcome(self.first.run.provenance, self.first.run.result)

    @cached_property
    def completed(self) -> tuple[SweepJob, ...]:
        """The jobs of the row that completed."""
        return tuple(job for job in self.jobs if job.state == "completed")

    @cached_property
    def label(self) -> str:
        """The row's swept values in short form."""
        return short_label(self.values) or f"job {self.number}"

    @property
    def numbers(self) -> list[str]:
        """The numbers of its jobs, several if seeds or folds were swept."""
        return list(dict.fromkeys(job.number for job in self.jobs))

    @property
    def marks(self) -> list[str]:
        """Remarks that are needed to interpret the row's numbers."""
        remarks = ["best"] if self.is_best else []
        if self.first.run.config.get("trainer.evaluate_only"):
            remarks.append("evaluation")
        if any(job.out_of_memory for job in self.jobs):
            remarks.append("out of memory")
        if (parts := max(job.split for job in self.jobs)) > 1:
            remarks.append(f"ran with {'half' if parts == 2 else f'1/{parts} of'} the micro-batch")
        if len(self.jobs) > 1 and self.completed and len(self.completed) < len(self.jobs):
            words = {SEED: "seeds", FOLD: "folds"} if len(self.numbers) > 1 else {}
            what = [words[key] for key in repeating_keys(self.jobs) if key in words]
            remarks.append(f"{len(self.completed)} of {len(self.jobs)} {what[0] if len(what) == 1 else 'repeats'}")
        if any(job.reason == EARLIER for job in self.jobs):
            remarks.append(EARLIER)
        if self.measures.with_first and self.state == "completed":
            remarks.append("first epoch included")
        return remarks


def make_rows(run_set: RunSet, keys: Sequence[str]) -> list[ReportRow]:
    """The set's jobs as rows, in their order."""
    jobs_of = grouped(run_set.jobs, lambda job: job.row or job.number)
    runs = [job.run for job in run_set.jobs]
    shown = (shown_metric(runs), shown_objective(runs))
    return [_row(number, jobs, keys, *shown) for number, jobs in jobs_of.items()]


def _row(
    number: str, jobs: list[SweepJob], keys: Sequence[str], metric: ShownMetric, objective: ShownMetric
) -> ReportRow:
    states = {job.state for job in jobs}
    completed = [job for job in jobs if job.state == "completed"]
    return ReportRow(
        number=number,
        jobs=tuple(jobs),
        values={key: value_of(jobs[0], key) for key in keys},
        state="completed" if completed else next((state for state in ORDER if state in states), jobs[0].state),
        measures=_averaged(completed or [job for job in jobs if job.run.epochs] or jobs[:1], metric, objective),
        digest=_digest(completed),
    )


def _averaged(jobs: list[SweepJob], metric: ShownMetric, objective: ShownMetric) -> Measures:
    """The jobs' measurements, combined, without values of several definitions."""
    measures = average([measure(job.run, metric, objective) for job in jobs])
    scores = {job.number: job.run.result.get("scores") for job in jobs}
    if unlike(objective.column, scores):
        measures = replace(measures, objective=None, objective_spread=None)
    if unlike(metric.column, scores):
        measures = replace(measures, metric=None, metric_spread=None, best_metric=None)
    return measures


def _digest(completed: list[SweepJob]) -> str | None:
    digests_of: dict[tuple[object, object], set[str]] = {}
    for job in completed:
        if digest := job.run.result.get("weights_sha256"):
            digests_of.setdefault((job.run.config.get("seed"), job.run.config.get(FOLD)), set()).add(str(digest))
    if any(len(digests) > 1 for digests in digests_of.values()):
        return "differs"
    if len(digests_of) > 1:
        return f"one for each of {len(digests_of)} {'seeds' if len({fold for _, fold in digests_of}) == 1 else 'folds'}"
    return next((digest for digests in digests_of.values() for digest in digests), None)


def is_chosen(row: ReportRow, wanted: dict[str, str]) -> bool:
    """Whether a row has all these values, of swept or other keys."""
    typed = parsed(row.first.overrides)
    return all(
        value in (row.values.get(key), typed.get(key), value_of(row.first, key)) for key, value in wanted.items()
    )
