"""Checks whether backends compute the same: compares each run's losses, step by step, with the baseline's."""

from collections.abc import Container, Sequence
from dataclasses import replace
from typing import Any

from manyheads.runner.provenance.provenance import without_effect
from manyheads.runner.records.keys import grouped, varying
from manyheads.runner.records.rounding import departure, is_early, paired
from manyheads.runner.records.values import text_of
from manyheads.runner.report.rows import ReportRow

MOST_SHOWN = 6
LATE, UNCLEAR = "departs from", "differs early from"  # how the texts about such rows begin
MEANING = {
    LATE: "Rounding differences that training has amplified, not faults in themselves",
    UNCLEAR: (
        "Losses cannot tell a fault from rounding here: without trainer.deterministic=true, GPUs add numbers in a "
        "different order in each run, and training amplifies that. To compare backends in double precision, use parity"
    ),
}
WITHOUT_LOSSES = ("parallel.", "launcher.", "checkpoint.", "logger.", "callbacks.", "metrics.")  # do not affect losses


def agree(rows: Sequence[ReportRow]) -> tuple[list[ReportRow], list[str]]:
    """The rows, each with how its losses agree with its reference's, and one sentence per finding."""
    logged = [row for row in rows if row.first.run.steps.get("loss")]
    several = varying(row.first.run.config for row in logged)
    told: dict[str, str] = {}
    findings: list[str] = []
    for members in grouped(logged, lambda row: _same_run(row, several)).values():
        reference = next((row for row in members if row.number == row.baseline), members[0])
        for row in members:
            if row is not reference:
                told[row.number], finding = _compared(row, reference)
                findings += finding
    for beginning, meaning in MEANING.items():
        texts = {row.number: told.get(row.number, "") for row in rows}
        if these := [f"job {number} {text}" for number, text in texts.items() if text.startswith(beginning)]:
            more = f"; and {len(these) - MOST_SHOWN} more" if len(these) > MOST_SHOWN else ""
            findings.append(f"{meaning}: {'; '.join(these[:MOST_SHOWN])}{more}.")
    return [replace(row, losses=told.get(row.number, "")) for row in rows], findings


def _compared(row: ReportRow, reference: ReportRow) -> tuple[str, list[str]]:
    run, other = row.first.run, reference.first.run
    tolerance = run.declared("precision").tolerance
    pairs = paired("loss", other.steps, run.steps)
    departed = departure(pairs, tolerance=tolerance)
    if not pairs:
        return f"no logged step in common with job {reference.number}", []
    if departed is None:
        return f"same as job {reference.number} in all {len(pairs)} logged steps", []
    if (weights := run.result.get("weights_sha256")) and weights == other.result.get("weights_sha256"):
        return f"ended with the same weights as job {reference.number}", []
    where = f"step {departed.step} ({departed.percent})"
    if not is_early(departed, tolerance=tolerance):
        return f"{LATE} job {reference.number} at {where}", []
    if not is_early(departed, tolerance=tolerance, exact=run.repeats_exactly and other.repeats_exactly):
        return f"{UNCLEAR} job {reference.number}, at {where}", []
    text = f"differs from job {reference.number} from {where} on"
    if _layout(row) == _layout(reference) or run.declared("model").treats_samples_alone:
        return text, [f"Finding: job {row.number} ({row.label}) {text}, by more than rounding can explain."]
    return text, [
        f"Job {row.number} ({row.label}) {text}. Not a fault if the model has BatchNorm or dropout, "
        "which work on each rank's share of the batch."
    ]


def _same_run(row: ReportRow, several: Container[str]) -> tuple[tuple[str, str], ...]:
    """Everything that determines a run's logged losses, except backend, launcher, ranks and micro-batches.

    trainer.log_every is included, since a row of steps.csv holds the mean loss since the previous row. ``several``: the
    keys that differ between runs.
    """
    ignored = without_effect() - {"trainer.log_every"} | {"trainer.grad_accumulation"}
    run = row.first.run
    plain = {"sync_batchnorm": False, **run.declared("parallel").changes_gradients}
    changed = {key for name in plain if run.config.get(key := f"parallel.{name}", plain[name]) != plain[name]}
    return tuple(
        sorted(
            (key, text_of(run.config[key]))
            for key in run.config
            if key in changed or (key in several and not (key.startswith(WITHOUT_LOSSES) or key in ignored))
        )
    )


def _layout(row: ReportRow) -> tuple[Any, Any]:
    """How the global batch is divided, on which statistics and random numbers per rank depend."""
    return row.measures.devices, row.first.run.config.get("trainer.grad_accumulation")
