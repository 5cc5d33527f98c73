"""Do backends compute the same? The same run's losses, step by step, against the baseline's."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from manyheads.runner.provenance.record import WITHOUT_EFFECT
from manyheads.runner.report.keys import text_of
from manyheads.runner.report.rows import Row

FIRST_ROWS = 5
MOST_TOLD = 6
# Relative to the loss. fp64 leaves seven digits more than it should need. fp32's rounding is 1e-7, sums in another
# order make 1e-6 of it, training some more. TF32 has 10 bits of mantissa in products, bfloat16 has 7, float16 10.
TOLERANCES = {"fp64": 1e-9, "fp32": 1e-3, "tf32": 1e-2}
MIXED = 5e-2
STEADY_STEPS, GROWTH = 20, 1.5  # rounding is amplified: from then on by half at each step, seen at high rates
LAYOUT_FREE = ("small_cnn", "vit_b_16")  # no BatchNorm, dropout or stochastic depth, so that ranks may not matter


@dataclass(frozen=True)
class Departure:
    """Two losses that are not the same any more. ``early``: before rounding could have done that."""

    step: int
    relative: float
    early: bool

    def __str__(self) -> str:
        size = f"{100 * self.relative:.2g} %" if math.isfinite(self.relative) else "one of them is not finite"
        return f"step {self.step} ({size})"


def agree(rows: Sequence[Row]) -> tuple[list[Row], list[str]]:
    """The rows, each saying how its losses agree with its reference's, and one sentence for each finding."""
    sets: dict[tuple, list[Row]] = {}
    for row in rows:
        if row.first.run.steps.get("loss"):
            sets.setdefault(_same_run(row), []).append(row)
    told: dict[str, str] = {}
    findings: list[str] = []
    for members in sets.values():
        reference = next((row for row in members if row.number == row.baseline), members[0])
        for row in members:
            if row is not reference:
                told[row.number], finding = _compared(row, reference)
                findings += finding
    later = [f"job {row.number} {told[row.number]}" for row in rows if told.get(row.number, "").startswith("departs")]
    if later:
        more = f"; and {len(later) - MOST_TOLD} more" if len(later) > MOST_TOLD else ""
        findings.append(
            f"Rounding, amplified by training, and no fault by itself: {'; '.join(later[:MOST_TOLD])}{more}."
        )
    return [replace(row, losses=told.get(row.number, "")) for row in rows], findings


def _compared(row: Row, reference: Row) -> tuple[str, list[str]]:
    run, other = row.first.run, reference.first.run
    found, common = departure(run.steps, other.steps, precision=str(run.config.get("precision.name")))
    if not common:
        return f"no logged step in common with job {reference.number}", []
    if found is None:
        return f"as job {reference.number} in all {common} logged steps", []
    if (weights := run.result.get("weights_sha256")) and weights == other.result.get("weights_sha256"):
        return f"ended with job {reference.number}'s weights", []
    if not found.early:
        return f"departs from job {reference.number} at {found}", []
    text = f"differs from job {reference.number} from {found} on"
    if _layout(row) == _layout(reference) or run.config.get("model.name") in LAYOUT_FREE:
        return text, [f"Finding: job {row.number} ({row.label}) {text}, more than rounding can be."]
    return text, [
        f"Job {row.number} ({row.label}) {text}. Not a fault if the model has BatchNorm or dropout, "
        "which work on each rank's share of the batch."
    ]


def tolerance_of(precision: str) -> float:
    """How far apart two values of the same computation in this precision may be, relative to their size."""
    return TOLERANCES.get(precision, MIXED)


def departure(
    steps: dict[str, list[float]], reference: dict[str, list[float]], *, precision: str
) -> tuple[Departure | None, int]:
    """The first logged step at which losses are not the same, and how many steps both have logged.

    Only the first five common rows can give an ``early`` one, and what they allow grows with the step: with
    trainer.log_every=10 the fifth is step 50, where a high learning rate has made 1e-7 into anything.
    """
    other = dict(zip(reference.get("step", []), reference.get("loss", []), strict=False))
    pairs = [(int(s), a, other[s]) for s, a in zip(steps["step"], steps["loss"], strict=False) if s in other]
    tolerance = tolerance_of(precision)
    floor = 0.01 * abs(pairs[0][2]) if pairs and math.isfinite(pairs[0][2]) else 0.0  # of a loss that nears zero
    for index, (step, a, b) in enumerate(pairs):
        relative = _relative(a, b, floor)
        if relative > tolerance:
            growth = GROWTH ** min(max(0, step - STEADY_STEPS), 200)
            return Departure(step, relative, early=index < FIRST_ROWS and relative > tolerance * growth), len(pairs)
    return None, len(pairs)


def _relative(a: float, b: float, floor: float) -> float:
    if not (math.isfinite(a) and math.isfinite(b)):
        return 0.0 if (math.isnan(a) and math.isnan(b)) or a == b else math.inf
    return abs(a - b) / max(abs(a), abs(b), floor, 1e-300)


def _same_run(row: Row) -> tuple[tuple[str, str], ...]:
    """All that decides a run's logged losses but backend, launcher, ranks and micro-batches.

    With trainer.log_every: a row of steps.csv holds the mean loss since the row before.
    """
    ignored = {f"{group}.{key}" for group, key in WITHOUT_EFFECT if key != "log_every"} | {"trainer.grad_accumulation"}
    parallel = {"parallel.compression": "none", "parallel.sync_batchnorm": False, "parallel.op": "average"}
    config: dict[str, Any] = {**parallel, **row.first.run.config}
    return tuple(
        sorted(
            (key, text_of(value))
            for key, value in config.items()
            if key in parallel or not (key.startswith(("parallel.", "launcher.", "checkpoint.")) or key in ignored)
        )
    )


def _layout(row: Row) -> tuple[Any, Any]:
    """How the global batch is cut: statistics and random numbers that are drawn per rank depend on it."""
    return row.measures.devices, row.first.run.config.get("trainer.grad_accumulation")
