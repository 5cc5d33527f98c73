"""A finished comparison, as shown in the terminal, the files and the page."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from manyheads.runner.data.data_option import DataOption
from manyheads.runner.option.declared import GROUPS
from manyheads.runner.records.keys import swept_keys
from manyheads.runner.records.run_set import RunSet, SweepJob
from manyheads.runner.records.shown_metric import ShownMetric, shown_metric, shown_objective
from manyheads.runner.report.agreement import agree
from manyheads.runner.report.baseline import compare_speed, make_rule
from manyheads.runner.report.fairness import differences, differing, fair_values, is_swept, shortened
from manyheads.runner.report.purpose import compares_speed, doubts, explain, rank, unlike_columns, unmeasured
from manyheads.runner.report.rows import ReportRow, make_rows
from manyheads.runner.run.crowding import crowded
from manyheads.runner.run.ledger import EARLIER, STATES
from manyheads.runner.run.slow_ranks import slow_in_words

# Mentioned in other notes, or without effect.
NOTED_ELSEWHERE = (
    *("parallel.", "launcher.", "checkpoint.", "trainer.device"),
    *(f"data.{key}" for key in DataOption.without_effect),
)
SUSPICIOUS = 1.2  # efficiency; caches and less memory traffic for each rank can make somewhat more than 1

EXPLAINED = ("failed", "skipped", "interrupted", "pruned")  # states whose reason is shown


@dataclass(frozen=True)
class Comparison:
    """``headline``: how many jobs completed; ``notes``: differences and findings; ``reasons``: of failed jobs.

    ``races``: backends or layouts were swept, so speed is compared; otherwise rows are sorted by the objective.
    ``alike``: whether all runs measured the objective by the same definition; otherwise it is not compared.
    """

    title: str
    folder: Path | None
    headline: str
    swept: list[str]
    rows: list[ReportRow]
    caption: str
    notes: list[str]
    reasons: list[str]
    active: bool = False  # jobs are still to run
    races: bool = True
    alike: bool = True

    @property
    def completed(self) -> list[ReportRow]:
        """The rows with at least one completed job."""
        return [row for row in self.rows if row.state == "completed"]

    @property
    def metric(self) -> ShownMetric:
        """The metric that tables and charts show."""
        return shown_metric(row.first.run for row in self.rows)

    @property
    def objective(self) -> ShownMetric:
        """The metric by which an epoch, and a row, is the best."""
        return shown_objective(row.first.run for row in self.rows)


def compare(run_set: RunSet, *, baseline: str | None = None) -> Comparison:
    """Compare a set of runs. Raises ConfigurationError if no completed job is the named ``baseline``."""
    swept = swept_keys(run_set)
    rows = make_rows(run_set, swept)
    objective = shown_objective(job.run for job in run_set.jobs)
    races = baseline is not None or compares_speed(rows, swept)
    versions = unlike_columns(rows, objective)
    alike = objective.column not in versions
    if races:
        rule = make_rule(rows, swept, baseline, strict=run_set.folder is not None)
        rows, findings = agree(compare_speed(rows, rule))
        rows = sorted(rows, key=lambda row: row.group)
    else:
        rows, findings = agree(rows)
        rows = rank(rows, objective, alike=alike)
    speed = rule.caption if races and any(row.baseline for row in rows) else ""
    notes = [*run_set.notes, *differences(rows, swept), *_loose(run_set, rows, swept), *versions.values()]
    notes += [*([] if races else unmeasured(rows, objective)), *_too_fast(rows), *doubts(rows, objective)]
    return Comparison(
        title=run_set.title,
        folder=run_set.folder,
        headline=headline(run_set),
        swept=swept,
        rows=rows,
        caption=speed or explain(rows, objective),
        notes=[*notes, *findings, *_remarks(rows)],
        reasons=_reasons(job for row in rows for job in row.jobs if job.state in EXPLAINED),
        active=run_set.active,
        races=races,
        alike=alike,
    )


def headline(run_set: RunSet) -> str:
    """Such as: 3 of 8 jobs completed, 1 failed, 2 skipped, 1 running, 1 pending."""
    counts = Counter(job.state for job in run_set.jobs)
    runs, jobs = len(run_set.jobs), len({job.number for job in run_set.jobs})
    if not runs:
        return "no jobs yet: the sweep is being planned" if run_set.active else "no jobs: the sweep is empty"
    named = f"job{'s' if jobs > 1 else ''}"
    what = named if runs == jobs else f"runs ({jobs} {named}, repeated)"
    order = ("failed", *sorted({*counts} - {*STATES}), "skipped", "pruned", "interrupted", "running", "pending")
    rest = [f"{counts[state]} {state}" for state in order if counts[state]]
    return ", ".join([f"{counts['completed']} of {runs} {what} completed", *rest])


def _reasons(jobs: Iterable[SweepJob]) -> list[str]:
    """Each reason once, with the jobs that did not complete because of it."""
    jobs_of: dict[tuple[str, str], list[str]] = {}
    for job in jobs:
        text = " ".join((job.reason or "no reason was recorded").split())
        repeat = f" (repeat {job.repeat})" if job.repeat > 1 else ""
        jobs_of.setdefault((job.state, text), []).append(f"{job.number}{repeat}")
    return [f"{shortened(numbers)} {state}: {text}" for (state, text), numbers in jobs_of.items()]


def _loose(run_set: RunSet, rows: list[ReportRow], swept: list[str]) -> list[str]:
    """A sentence on the keys in which runs that are not from a sweep may differ by accident."""
    if run_set.folder is not None:
        return []
    readable = [row for row in rows if row.first.run.config]
    settings = [key for key in differing(readable) if is_swept(key, swept)]
    keys = [f"{key}.name" if key in GROUPS else key for key in swept]
    fair = {key for row in readable for key in fair_values(row)}
    besides = [key for key in keys if key not in fair and not key.startswith(NOTED_ELSEWHERE)]
    return [f"The runs differ in {', '.join([*settings, *besides])}."] if settings or besides else []


def _too_fast(rows: list[ReportRow]) -> list[str]:
    """A sentence on rows whose ranks, though more, were each clearly faster than the baseline's at the same work."""
    by_number = {row.number: row for row in rows}
    suspicious = []
    for row in rows:
        base = by_number.get(row.baseline or "")
        if base is None or (row.efficiency or 0) <= SUSPICIOUS:
            continue
        devices = [one.first.run.config.get("trainer.device") for one in (row, base)]
        alike = fair_values(row) == fair_values(base) and devices[0] == devices[1]
        if alike and (row.measures.devices or 0) > (base.measures.devices or 0):
            suspicious.append(row.number)
    if not suspicious:
        return []
    scale = "scales" if len(suspicious) == 1 else "scale"
    return [f"J{shortened(suspicious)[1:]} {scale} better than linearly. Was the machine busy while the baseline ran?"]


def _remarks(rows: list[ReportRow]) -> Iterator[str]:
    """Sentences on single jobs: weights that differ, predicted times, slow ranks, few cores, times of earlier runs."""
    jobs = [job for row in rows for job in row.jobs]
    for row in rows:
        if row.digest == "differs":
            yield f"Finding: repeats of job {row.number} ({row.label}) with the same seed ended with different weights."
    for row in rows:
        if (outcome := row.predicted) is not None:  # by `scale`
            yield f"Job {row.number} ({row.label}): {outcome.describe()} (prediction {100 * outcome.error:+.1f} %)."
    for job in jobs:
        if slow := job.run.result.get("slow_ranks"):
            yield f"Job {job.number}: the other ranks waited for {slow_in_words(slow)}."
    numbers, worst = crowded({job.number: job.run.folder for job in jobs})
    if worst is not None:  # their speed is not their own
        yield f"Too few cores for {shortened(numbers)}, at worst: {worst.sentence}."
    if earlier := [job.number for job in jobs if job.reason == EARLIER]:
        yield f"Not run again, since equal runs had completed: {shortened(earlier)}."
