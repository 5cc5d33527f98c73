"""The purposes of a judgement's runs: what their ranks do, and what is read of their results."""

import math
from collections.abc import Mapping
from itertools import accumulate
from typing import Any

from manyheads.launchers.launcher import TRAIN
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.judge.rows import FACTS, STEPS
from manyheads.runner.judge.runs import Purpose
from manyheads.runner.judge.task import PaceTask, marked_seconds, write_task
from manyheads.runner.parity.parity_task import ParityTask
from manyheads.runner.parity.parity_task import write_task as write_steps
from manyheads.runner.report.claims import direction
from manyheads.runner.report.load_run import read_columns
from manyheads.runner.run.run_folder import RunFolder

STEPS_COMPARED = 5
UNREACHED = 2.0


def facts() -> Purpose:
    """Which samples and dtypes an arm computes on."""
    return Purpose(
        FACTS, "manyheads.runner.judge.rank.facts", lambda folder: None, lambda _, result: (None, result["facts"])
    )


def steps(*, tolerance: float, baseline: RunFolder | None, trace: bool) -> Purpose:
    """The first steps, kept as the ``baseline`` if there is none yet, else compared with it."""
    task = ParityTask(STEPS_COMPARED, tolerance, None if baseline is None else str(baseline.path), trace=trace)
    return Purpose(
        STEPS,
        "manyheads.runner.parity.rank.probe",
        lambda folder: write_steps(folder, task),
        lambda _, result: (None, result["parity"]),
    )


def training(name: str, metric: str) -> Purpose:
    """A whole training; its metric after the last evaluation is compared, with the sign that makes greater better."""

    def read(folder: RunFolder, result: Mapping[str, Any]) -> tuple[float, Mapping[str, Any]]:
        sign = 1 if direction(result, metric) == "max" else -1
        value = result["metrics"][metric]
        if not math.isfinite(value):
            raise ConfigurationError(f"{metric} is {value} after training.")
        found = {metric: value, "train_seconds": result["train_seconds"], "weights_sha256": result["weights_sha256"]}
        return sign * value, found

    return Purpose(name, TRAIN, lambda folder: None, read)


def reaching(name: str, metric: str, target: float) -> Purpose:
    """The seconds of training after which an evaluation first reaches the target; compared by their logarithm.

    A run that never reaches it counts as if it had taken UNREACHED times as long as it trained.
    """

    def read(folder: RunFolder, result: Mapping[str, Any]) -> tuple[float, Mapping[str, Any]]:
        sign = 1 if direction(result, metric) == "max" else -1
        epochs = read_columns(folder.epochs)
        reached = [sign * value >= sign * target for value in epochs.get(metric, ())]
        total = [*accumulate(epochs["train_seconds"])]
        seconds = total[reached.index(True)] if any(reached) else UNREACHED * total[-1]
        found = {"seconds": seconds, "reached": any(reached), "weights_sha256": result["weights_sha256"]}
        return -math.log(seconds), {**found, "train_seconds": result["train_seconds"]}

    return Purpose(name, TRAIN, lambda folder: None, read)


def pace(name: str, updates: int) -> Purpose:
    """The seconds that ``updates`` take; compared by their logarithm, so differences are relative."""

    def read(folder: RunFolder, result: Mapping[str, Any]) -> tuple[float, Mapping[str, Any]]:
        seconds = result["pace"]["seconds"]
        found = {"seconds": seconds, "marked": marked_seconds(folder.path), "updates": updates}
        found |= {"samples": result["samples_seen"], "weights_sha256": result["weights_sha256"]}
        return -math.log(seconds / updates), found

    return Purpose(name, "manyheads.runner.judge.rank.pace", lambda folder: write_task(folder, PaceTask(updates)), read)
