"""Selects and orders runs."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from manyheads.runner.errors import ConfigurationError, not_allowed
from manyheads.runner.machine import invocation
from manyheads.runner.records.run_summary import STATUSES, Summary
from manyheads.runner.records.shown_metric import described
from manyheads.runner.records.values import fits, has_key, text_of
from manyheads.runner.run.score_versions import unlike, version_of

COLUMNS: dict[str, Callable[[Summary], Any]] = {
    "folder": lambda run: str(run.folder.path),
    "status": lambda run: run.status,
    "seconds": lambda run: run.seconds,
    "started": lambda run: -run.started,  # the newest first
}


def selected(runs: Sequence[Summary], filters: Sequence[str]) -> list[Summary]:
    """The runs that match all ``filters``, each of which is ``key=value`` for status or any key of the run config.

    A list matches if it contains the value. Raises ConfigurationError for an unknown status, and for keys that no
    run has.
    """
    kept = list(runs)
    for key, value in sorted(map(_pair, filters), key=lambda pair: pair[0] != "status"):  # needs no config
        if key == "status":
            kept = [run for run in kept if run.status == value]
            continue
        if kept and not any(has_key(run.config, key) for run in kept):
            all_keys = invocation.command("train", "--cfg", "job")
            raise ConfigurationError.at(
                key, value, f": none of these runs has such a key. `{all_keys}` lists all of them."
            )
        kept = [run for run in kept if fits(run.value(key), value)]
    return kept


def ordered(runs: Sequence[Summary], by: str | None) -> list[Summary]:
    """The runs ordered ``by`` a metric, the best first, or a column or a config key; by default the newest first.

    Runs without a value come last, and values of an older definition after those of a newer one. Raises
    ConfigurationError if no run has one.
    """
    by = by or "started"
    if by in COLUMNS:
        values = [COLUMNS[by](run) for run in runs]
    elif any(by in (run.result.get("metrics") or {}) for run in runs):
        versions = {run.folder.path: version_of(run.result.get("scores") or {}, by) for run in runs}
        ranked = sorted(runs, key=lambda run: _rank(_signed(run, by)))
        newest_first = sorted(ranked, key=lambda run: versions[run.folder.path], reverse=True)
        return sorted(newest_first, key=lambda run: _signed(run, by) is None)
    else:
        values = [run.value(by) for run in runs]
        if runs and all(value is None for value in values):
            metrics = dict.fromkeys(name for run in runs for name in run.result.get("metrics") or {})
            allowed = ", ".join((*COLUMNS, *metrics))
            raise ConfigurationError.at(
                "--sort", by, f": none of these runs has that. Allowed: {allowed}, or a config key."
            )
    pairs = sorted(zip(values, runs, strict=True), key=lambda pair: _rank(pair[0]))
    return [run for _, run in pairs]


def unlike_metrics(runs: Sequence[Summary], by: str | None) -> list[str]:
    """A sentence on each metric that these runs are judged or ordered ``by``, and measured by several definitions."""
    scores = {str(run.folder): run.result.get("scores") for run in runs if run.result.get("metrics")}
    columns = dict.fromkeys([*(run.metric.column for run in runs), *([by] if by else [])])
    return [sentence for column in columns if (sentence := unlike(column, scores)) is not None]


def _pair(text: str) -> tuple[str, str]:
    key, _, value = text.partition("=")
    if key == "status" and value not in STATUSES:
        raise not_allowed("status", value, ", ".join(STATUSES), values=STATUSES)
    return key, value


def _signed(run: Summary, name: str) -> float | None:
    value = (run.result.get("metrics") or {}).get(name)
    if value is None or math.isnan(value):
        return None
    return -value if _is_best_when_high(run, name) else value


def _is_best_when_high(run: Summary, name: str) -> bool:
    """Whether a metric is best when high, according to the run's task. Losses and unknown metrics are best when low."""
    metric = name.partition("_")[2]
    if (about := described(run.result).get(metric)) is not None:
        return about.get("direction") == "max"
    return metric in ("acc1", "acc5")  # in runs from before there were tasks


def _rank(value: Any) -> tuple[int, Any]:
    """A key for sorting values of different types: numbers, then texts, then missing values."""
    if value is None:
        return (2, 0)
    return (0, value) if isinstance(value, (int, float)) else (1, text_of(value))
