"""The order of rows if settings were swept: by the objective, the best first."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache

from manyheads.runner.config.lookup import ABOUT, own_sections
from manyheads.runner.config.run_rules import TUNABLE
from manyheads.runner.option.declared import ENTRIES, GROUPS, declared_class
from manyheads.runner.provenance.provenance import without_effect
from manyheads.runner.records.keys import varies
from manyheads.runner.records.shown_metric import LOSS, ShownMetric, shown_value
from manyheads.runner.report.rows import ReportRow
from manyheads.runner.run.score_versions import unlike
from manyheads.runner.wording import listed


def unlike_columns(rows: Sequence[ReportRow], objective: ShownMetric) -> dict[str, str]:
    """The columns, objective or loss, that were not measured by one definition in all runs, each with a sentence."""
    runs = {f"job {job.number}": job.run.result.get("scores") for row in rows for job in row.jobs}
    columns = dict.fromkeys((objective.column, LOSS.column))
    return {column: sentence for column in columns if (sentence := unlike(column, runs)) is not None}


def unmeasured(rows: Sequence[ReportRow], objective: ShownMetric) -> list[str]:
    """A sentence on completed rows that have no objective, if others have; else []."""
    missing = [row.number for row in rows if row.state == "completed" and row.measures.objective is None]
    if not missing or len(missing) == len(rows):
        return []
    return [f"Not ranked: {objective.column} has no value in job{'s' if len(missing) > 1 else ''} {listed(missing)}."]


def rank(rows: Sequence[ReportRow], objective: ShownMetric, *, alike: bool = True) -> list[ReportRow]:
    """The rows, best first, with the best one marked; unmeasured or incomplete ones come last.

    ``alike``: whether their values can be compared; otherwise the order stays.
    """
    if not alike:
        return list(rows)
    sign = -1 if objective.direction == "max" else 1

    def key(row: ReportRow) -> tuple[bool, bool, float]:
        value = row.measures.objective
        is_finite = value is not None and math.isfinite(value)
        return (row.state != "completed", not is_finite, sign * value if value is not None and is_finite else 0.0)

    ranked = sorted(rows, key=key)
    values = {key(row) for row in ranked if not any(key(row)[:2])}
    best = min(values) if len(values) > 1 else None
    return [replace(row, is_best=key(row) == best) for row in ranked]


def explain(rows: Sequence[ReportRow], objective: ShownMetric) -> str:
    """A sentence on how the rows are ordered, for below the table."""
    if not any(row.is_best for row in rows):
        return ""
    extreme = "highest" if objective.direction == "max" else "lowest"
    several = any(row.measures.runs > 1 for row in rows)
    spread = "mean ± standard deviation over n runs" if several else "of one run each: a difference may be chance"
    what = objective.label.removeprefix("val ")
    return f"Sorted by best {objective.label}: each run's {extreme} validation {what} after any epoch; {spread}."


def doubts(rows: Sequence[ReportRow], objective: ShownMetric) -> list[str]:
    """A sentence if the two best rows differ by no more than their runs do; else []."""
    first, second, *_ = [*(row.measures for row in rows if row.state == "completed"), None, None]
    if first is None or second is None or first.objective is None or second.objective is None:
        return []
    spreads = [measures.objective_spread for measures in (first, second) if measures.objective_spread is not None]
    gap = abs(first.objective - second.objective)
    if not spreads or not gap <= max(spreads) or not any(row.is_best for row in rows):
        return []
    told = ", ".join(
        f"{row.label}: {shown_value(objective, row.measures.objective, row.measures.objective_spread)}"
        f" (n = {row.measures.runs})"
        for row in rows[:2]
    )
    return [
        f"The top two rows are within one standard deviation of each other ({told}): more seeds may change their order."
    ]


BACKENDS = ("parallel", "launcher", "precision")


def is_layout(key: str) -> bool:
    """Whether a swept key is a backend, or determines how a run is distributed over devices and computed there."""
    plain = key in without_effect() and key not in (*ABOUT, *ENTRIES)
    return plain or key in _tunable() or key.partition(".")[0] in BACKENDS


@cache
def _tunable() -> frozenset[str]:
    """Keys that change how updates are computed, but not their results."""
    options = ((group, declared_class(group, section)) for group in GROUPS for section in own_sections(group))
    return frozenset(TUNABLE).union(f"{group}.{key}" for group, kind in options for key in kind.all_tunable())


def compares_speed(rows: Sequence[ReportRow], swept: Iterable[str]) -> bool:
    """Whether speed-ups are meaningful: a backend or a layout was swept, perhaps by a named experiment."""
    if any(map(is_layout, swept)):
        return True
    configs = [row.first.run.config for row in rows if row.first.run.config]
    return "experiment" in swept and any(varies(configs, f"{group}.name") for group in BACKENDS)
