"""Reads a finished run, compares its tables with a repetition's, and refuses one without anything to compare."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine import invocation
from manyheads.runner.option.declared import GROUPS
from manyheads.runner.option.tree import Section
from manyheads.runner.records.load_run import Columns, Run, read_columns
from manyheads.runner.records.rounding import ComparedValue, paired, relative_difference
from manyheads.runner.records.run_result import refuse_edited
from manyheads.runner.records.shown_metric import is_share
from manyheads.runner.run.data_files import read_json
from manyheads.runner.run.json_types import ProvenanceJson, ResultJson, check
from manyheads.runner.run.ledger import Ledger
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.run.score_versions import unlike


@dataclass(frozen=True)
class Past:
    """A completed run as it was recorded. ``config``: as frozen; ``steps``, ``epochs``: its tables, by column."""

    folder: RunFolder
    config: Section
    result: ResultJson
    provenance: ProvenanceJson
    steps: Columns
    epochs: Columns


def read_past(path: str | Path) -> Past:
    """Read a completed run.

    Raises ConfigurationError if the folder is missing, is not a run, is unfinished, was written by a newer version, or
    was edited.
    """
    folder = RunFolder(path)
    if folder.path.is_file():
        raise ConfigurationError(f"{folder} is a file. Name the run's folder, such as {folder.path.parent}.")
    if not folder.path.is_dir():
        raise ConfigurationError(
            f"{folder} is not a folder. Name the folder of a finished run, such as outputs/<date>/<time>."
        )
    if Ledger(folder.path).exists() or (folder.path / "multirun.yaml").exists():
        raise ConfigurationError(f"{folder} is a sweep. Name one of its runs, such as {folder}/0.")
    folder.pin_config()
    config = folder.read_config()
    folder.refuse_other_format()
    if missing := [name for name in (*GROUPS, "trainer") if not isinstance(config.get(name), dict)]:
        raise ConfigurationError(f"{folder.config} is not a run config: it lacks {', '.join(missing)}.")
    provenance = _read_json(folder.provenance, f"{folder} was never started. Resume it: {_resume(folder)}")
    result = _read_json(folder.result, f"{folder} has not ended. Wait for it, or resume it: {_resume(folder)}")
    if result.get("status") != "completed":
        raise ConfigurationError(
            f"{folder} is not complete: {result.get('status')} after {result.get('steps', 0)} steps. "
            f"Resume it: {_resume(folder)}"
        )
    recorded = check(result, ResultJson, folder.result)
    origin = check(provenance, ProvenanceJson, folder.provenance)
    refuse_edited(folder, recorded)
    return Past(folder, config, recorded, origin, read_columns(folder.steps), read_columns(folder.epochs))


def _resume(folder: RunFolder) -> str:
    return invocation.command("resume", folder)


def _read_json(path: Path, missing: str) -> dict[str, Any]:
    try:
        return read_json(path)
    except FileNotFoundError:
        raise ConfigurationError(missing) from None
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error}. Restore it from a copy.") from None


STEP_VALUES = ("loss", "grad_norm")
NO_SCORES = ("val_seconds", "val_samples")


def pairs(recorded: Past, now: Run, *, resumed: bool = False) -> list[ComparedValue]:
    """Every value that both runs measured, in the order of steps.

    resumed: whether the new run resumed from a checkpoint of the recorded one, so that its first row may cover fewer
    updates.
    """
    compared = [*_of_steps(recorded, now, resumed), *_of_epochs(recorded, now)]
    measured = [pair for pair in compared if not (math.isnan(pair.recorded) and math.isnan(pair.now))]
    return sorted(measured, key=lambda pair: pair.step)


def evaluated(recorded: ResultJson, now: ResultJson) -> list[ComparedValue]:
    """The evaluation metrics in two runs' result.json."""
    compared, samples = [], float(recorded["metrics"].get("val_samples") or math.nan)
    others = unlike_scores(recorded, now)
    for name in (name for name in recorded["metrics"] if is_score(name) and name not in others):
        a, b = (content["metrics"].get(name) for content in (recorded, now))
        if a is not None and b is not None:
            compare = _comparison(samples if is_share(name, recorded) else None)
            compared.append(ComparedValue(name, recorded["steps"], a, b, compare(a, b, 0.0)))
    return compared


def unlike_scores(recorded: ResultJson, now: ResultJson) -> dict[str, str]:
    """The losses and metrics that the two runs measured by different definitions, each with a sentence."""
    runs = {"the recorded run": recorded.get("scores"), "the repetition": now.get("scores")}
    columns = [name for name in recorded.get("metrics") or {} if is_score(name) or name == "train_loss"]
    return {name: sentence for name in columns if (sentence := unlike(name, runs)) is not None}


def is_score(column: str) -> bool:
    """Whether a column of epochs.csv is a loss or metric of the evaluation."""
    return column.startswith("val_") and column not in NO_SCORES


def farthest(compared: Iterable[ComparedValue]) -> ComparedValue | None:
    """The pair of values with the largest relative difference, the first of several; None if there are none."""
    return max(compared, key=lambda pair: pair.relative, default=None)


def _of_steps(past: Past, run: Run, resumed: bool) -> list[ComparedValue]:
    """Pairs from rows of steps.csv that cover the same updates: a row has means over those since the row before."""
    before, previous = _predecessors(past.steps), _predecessors(run.steps)
    alike = {
        step
        for step in previous
        if step in before and (previous[step] == before[step] or (resumed and previous[step] is None))
    }
    has_other_loss = "train_loss" in unlike_scores(past.result, run.result)
    names = [name for name in STEP_VALUES if name != "loss" or not has_other_loss]
    return [pair for name in names for pair in paired(name, past.steps, run.steps, steps=alike)]


def _of_epochs(recorded: Past, now: Run) -> list[ComparedValue]:
    """Pairs from rows of epochs.csv that end at the same step."""
    table, others = recorded.epochs, unlike_scores(recorded.result, now.result)
    samples = min(table.get("val_samples", []), default=math.nan)
    pairs: list[ComparedValue] = []
    for name in ("train_loss", *filter(is_score, table)):
        if name not in others:
            compare = _comparison(samples if is_share(name, recorded.result) else None)
            pairs += paired(name, table, now.epochs, compare=compare)
    return pairs


def _comparison(samples: float | None) -> Callable[[float, float, float], float]:
    """The function that compares two values.

    A percentage of ``samples`` counts as equal if one sample differs: rounding may decide how it is classified.
    """

    def shares(a: float, b: float, _: float) -> float:
        apart = abs(a - b) / 100
        return 0.0 if apart * (samples or 0.0) < 1.5 else apart

    return relative_difference if samples is None else shares


def _predecessors(table: Columns) -> dict[float, float | None]:
    """The step of the row before, by each row's step; None for the first row."""
    steps = table.get("step", [])
    return dict(zip(steps, [None, *steps], strict=False))
