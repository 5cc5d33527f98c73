"""Versions of what is measured: values of two versions of one metric are never compared."""

from collections.abc import Mapping

from manyheads.runner.run.json_types import ScoresJson
from manyheads.runner.wording import listed


def version_of(scores: ScoresJson, column: str) -> str:
    """The version of a column such as ``val_acc1`` in the ``scores`` of a result.json; 1 if none is recorded.

    ``1`` or, if evaluations were made in another way, ``1 (16 of 37 samples)``.
    """
    split, _, name = column.partition("_")
    metrics = scores.get("metrics") or {}
    about = scores if name == "loss" else metrics.get(name) or {}
    definition, way = about.get("version") or 1, (scores.get("evaluations") or {}).get(split)
    return f"{definition} ({way})" if way else f"{definition}"


def unlike(column: str, runs: Mapping[str, ScoresJson | None]) -> str | None:
    """A sentence if these runs, by name, measured a column in different versions; else None.

    Runs without scores have measured nothing, and those whose metrics lack the column's have not measured it.
    """
    name = column.partition("_")[2]
    by_version: dict[str, list[str]] = {}
    for run, scores in runs.items():
        if scores and (name == "loss" or name in (scores.get("metrics") or {name})):
            by_version.setdefault(version_of(scores, column), []).append(run)
    if len(by_version) < 2:
        return None
    told = "; ".join(f"version {version} in {listed(names)}" for version, names in sorted(by_version.items()))
    return f"{column} has several definitions: {told}. Its values are not compared."
