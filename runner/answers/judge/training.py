"""Runs of a judgement that train to the end: what they record of metrics and seconds."""

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from manyheads.launchers.job import TRAIN
from manyheads.runner.answers.judge.terms import FOUND, SIGNS, UNREACHED, VERSIONS, Aim
from manyheads.runner.answers.measure.runs import Purpose
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.records.claims import direction
from manyheads.runner.records.load_run import Columns, read_columns
from manyheads.runner.run.json_types import ScoresJson, right
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.run.score_versions import version_of


def training(name: str, aims: Sequence[Aim]) -> Purpose:
    """To train to the end, for metrics of the last evaluation and the seconds until targets were reached.

    Reading the result raises ConfigurationError if a metric is not finite.
    """

    def read(folder: RunFolder, result: Mapping[str, Any]) -> Mapping[str, Any]:
        epochs = read_columns(folder.epochs)
        signs, values, versions, unreached = {}, {}, {}, []
        for aim in aims:
            metric = aim.text if aim.target is None else aim.target[0]
            signs[aim.text] = 1 if not aim.is_training and direction(result, metric) == "max" else -1
            value: float | None
            if aim.is_training:
                value = sum(epochs["train_seconds"])
            elif aim.target is None or result["metrics"][metric] is None:
                value = result["metrics"][metric]
            elif (value := _seconds_to(aim.target[1], epochs, metric, sign=signs[aim.text])) is None:
                unreached.append(aim.text)
                value = UNREACHED * sum(epochs["train_seconds"])
            if value is None or not math.isfinite(value):
                what = "has no value" if value is None else f"is {value}"
                raise ConfigurationError(f"{metric} {what} after training. Set --on to another metric.", key="--on")
            values[aim.text] = value
            versions[aim.text] = version_of(right(result.get("scores") or {}, ScoresJson), metric)
        recorded = {key: result[key] for key in ("train_seconds", "weights_sha256")}
        return {FOUND: values, SIGNS: signs, VERSIONS: versions, "unreached": unreached, **recorded}

    return Purpose(name, TRAIN, lambda folder: None, read)


def _seconds_to(target: float, epochs: Columns, metric: str, *, sign: int) -> float | None:
    """Seconds of training after which an evaluation first reached the target; None if none did."""
    reached = [sign * value >= sign * target for value in epochs.get(metric, ())]
    total = [*accumulate(epochs["train_seconds"])]
    return total[reached.index(True)] if any(reached) else None
