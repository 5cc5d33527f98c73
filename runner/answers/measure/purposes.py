"""The purposes of runs of two arms: what their ranks do, and which of their results are recorded."""

from collections.abc import Mapping
from typing import Any

from manyheads.runner.answers.measure.pace_task import BEGAN, ENDED, seconds_between, write_task
from manyheads.runner.answers.measure.rows import EXACT, FACTS, STEPS
from manyheads.runner.answers.measure.runs import Purpose
from manyheads.runner.answers.measure.steps_task import ParityTask
from manyheads.runner.answers.measure.steps_task import write_task as write_steps
from manyheads.runner.precision.fp64 import FP64Option
from manyheads.runner.run.run_folder import RunFolder

STEPS_COMPARED = 5


def facts() -> Purpose:
    """To find out on which samples and in which dtypes an arm computes."""
    return Purpose(
        FACTS, "manyheads.runner.answers.measure.rank.facts", lambda folder: None, lambda _, result: result["facts"]
    )


def steps(
    *, tolerance: float, baseline: RunFolder | None, trace: bool, name: str = STEPS, counts_casts: bool = False
) -> Purpose:
    """To take the first steps, and compare them with those in ``baseline``; if it is None, to record them as such."""
    task = ParityTask(
        STEPS_COMPARED, tolerance, None if baseline is None else str(baseline.path), trace, counts_casts=counts_casts
    )
    return Purpose(
        name,
        "manyheads.runner.answers.measure.rank.probe",
        lambda folder: write_steps(folder, task),
        lambda _, result: result["parity"],
    )


def exact(*, baseline: RunFolder | None) -> Purpose:
    """To take the same steps in double precision. ``baseline``: as for ``steps``."""
    return steps(tolerance=FP64Option.tolerance, baseline=baseline, trace=False, name=EXACT, counts_casts=True)


def pace(name: str, updates: int) -> Purpose:
    """To time this number of updates."""

    def read(folder: RunFolder, result: Mapping[str, Any]) -> Mapping[str, Any]:
        return {
            "seconds": result["pace"]["seconds"],
            "marked": seconds_between(folder.path / BEGAN, folder.path / ENDED),
            "updates": updates,
            "samples": result["samples_seen"],
            "peak_mb": max(result["peak_memory_mb"]),
            "weights_sha256": result["weights_sha256"],
        }

    return Purpose(name, "manyheads.runner.answers.measure.rank.pace", lambda folder: write_task(folder, updates), read)
