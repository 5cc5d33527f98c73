"""Decides which rows may be compared with each other, and what else differs between them."""

import math
from collections.abc import Callable, Container, Iterable, Sequence
from functools import cache
from typing import Any

from manyheads.runner.config.lookup import own_sections
from manyheads.runner.machine.gpus import THROTTLED
from manyheads.runner.option.declared import declared_class
from manyheads.runner.option.tree import OPTION
from manyheads.runner.provenance.own_code import in_words
from manyheads.runner.provenance.provenance import without_effect
from manyheads.runner.records.keys import follows, repeating_keys, varies, varying
from manyheads.runner.records.values import text_of
from manyheads.runner.report.rows import ReportRow
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.wording import listed

GROUPS = ("model.", "data.", "task.", "precision.")
SINGLE = ("seed", "trainer.epochs", "trainer.max_steps")
ENVIRONMENT = {
    "host": lambda row: row.first.run.provenance.get("host"),
    "GPUs": lambda row: ", ".join(row.first.run.provenance.get("devices") or ()),
    "CPU": lambda row: (row.first.run.provenance.get("cpu") or {}).get("model"),
    "device": lambda row: row.first.run.config.get("trainer.device"),
    "CPU threads of all ranks": lambda row: _threads(row),
    "throttling of GPUs": lambda row: _throttling(row),
    "data.num_workers": lambda row: row.first.run.config.get("data.num_workers"),
    "torch": lambda row: (row.first.run.provenance.get("versions") or {}).get("torch"),
    "CUDA": lambda row: (row.first.run.provenance.get("versions") or {}).get("cuda"),
    "commit of manyheads": lambda row: (row.first.run.provenance.get("commit") or "")[:10],
    "changes of manyheads": lambda row: {True: "no", False: "yes"}.get(row.first.run.provenance.get("clean")),
    "own code": lambda row: in_words(row.first.run.provenance),
}


def fair_values(row: ReportRow, only: Container[str] | None = None) -> dict[str, str]:
    """The values that must agree for speed and accuracy to be comparable. A missing key changes no gradients.

    ``only``: the keys that are asked for, None for all.
    """
    config = row.first.run.config
    kept = {
        key: text_of(config[key])
        for key in config
        if (only is None or key in only)
        and (key in SINGLE or key.startswith(GROUPS))
        and key not in without_effect()
        and not key.endswith(("._target_", f".{OPTION}"))
    }
    exact_values = changes_gradients().items()
    return {key: text_of(config.get(key, exact)) for key, exact in exact_values if only is None or key in only} | kept


@cache
def changes_gradients() -> dict[str, Any]:
    """Keys of this project's strategies that are meant to change gradients, with the values that do not."""
    strategies = (declared_class("parallel", section) for section in own_sections("parallel"))
    return {f"parallel.{key}": exact for kind in strategies for key, exact in kind.changes_gradients.items()}


def differing(rows: Sequence[ReportRow]) -> list[str]:
    """Keys of fair_values that are not the same in all rows; a group's option represents the keys that it sets."""
    several = varying(row.first.run.config for row in rows)
    values = [fair_values(row, several) for row in rows]
    repeating = repeating_keys([job for row in rows for job in row.jobs])
    all_keys = dict.fromkeys(key for v in values for key in v if key not in repeating)
    keys = [key for key in all_keys if varies(values, key)]
    return [
        key
        for key in keys
        if key.endswith(".name")
        or (leader := f"{key.partition('.')[0]}.name") not in keys
        or not follows(values, leader, key)
    ]


def is_swept(key: str, swept: Iterable[str]) -> bool:
    """Whether the sweep varied this key, its group, or a named experiment, which may set any key."""
    return any(key in (name, f"{name}.name") or key.startswith(f"{name}.") or name == "experiment" for name in swept)


def divide(rows: Sequence[ReportRow], keys: Sequence[str]) -> dict[str, int]:
    """Each row's group, by its number: rows are compared where they agree in ``keys``."""
    groups: dict[tuple[str | None, ...], int] = {}
    group_of = {}
    for row in rows:
        values = fair_values(row, keys)
        group_of[row.number] = groups.setdefault(tuple(values.get(key) for key in keys), len(groups))
    return group_of


def differences(rows: Sequence[ReportRow], swept: Sequence[str]) -> list[str]:
    """One sentence for each difference that was not swept."""
    readable = [row for row in rows if row.first.run.config]
    unfair = [key for key in differing(readable) if not is_swept(key, swept)]
    notes = [
        f"Not compared with each other: {key} differs, though it was not swept ({_who(readable, _at(key))})."
        for key in unfair
    ]
    for name, value in ENVIRONMENT.items():
        if name not in swept and (
            who := _who([row for row in readable if value(row) not in (None, "")], value, few=True)
        ):
            notes.append(f"Different {name}: {who}.")
    return notes


def _at(key: str) -> Callable[[ReportRow], Any]:
    return lambda row: fair_values(row, {key}).get(key)


def _who(rows: Sequence[ReportRow], value: Callable[[ReportRow], Any], *, few: bool = False) -> str:
    """``1: jobs 0, 2; 2: job 1``, or empty if all agree. ``few``: the most common value does not list its jobs."""
    rows_of: dict[str, list[str]] = {}
    for row in rows:
        rows_of.setdefault(text_of(value(row)) or "none", []).append(row.number)
    if len(rows_of) < 2:
        return ""
    usual = max(rows_of, key=lambda text: len(rows_of[text])) if few else None
    return "; ".join(f"{text}: {'the others' if text == usual else shortened(rows_of[text])}" for text in rows_of)


def shortened(numbers: Sequence[str], most: int = 8) -> str:
    """A shortened list of rows, by their numbers."""
    return f"job{'s' if len(numbers) > 1 else ''} {listed(numbers, most)}"


def _threads(row: ReportRow) -> int | None:
    per_rank = row.first.run.config.get("launcher.threads_per_rank")
    if isinstance(per_rank, str):
        per_rank = RunFolder(row.first.run.folder).chosen_threads()
    return per_rank * row.measures.ranks if isinstance(per_rank, int) and row.measures.ranks else None


def _throttling(row: ReportRow) -> str | None:
    """Why a row's GPUs lowered their clocks for more than a tenth of its time; None if that was not recorded."""
    bits = [
        int(reading) for job in row.jobs for reading in job.run.gpu.get("throttled_by", ()) if not math.isnan(reading)
    ]
    reasons = [why for bit, why in THROTTLED.items() if sum(bool(reading & bit) for reading in bits) > len(bits) / 10]
    return (" and ".join(reasons) or "none") if bits else None
