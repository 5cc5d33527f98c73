"""Whether a change computes the same: the samples and dtypes of both arms, and the same steps taken by both."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from manyheads.runner.precision.fp64 import FP64Option

SAME_BITS, WITHIN_ROUNDING, AS_ASKED, DIFFERENT = "same bits", "within rounding", "as asked", "different"
CLASSES = {
    SAME_BITS: "the same numbers to the last bit",
    WITHIN_ROUNDING: "the same numbers within rounding",
    AS_ASKED: "the same numbers within the tolerance of what was asked for",
    DIFFERENT: "different numbers",
}


@dataclass(frozen=True)
class Numerics:
    """``biggest``: the largest relative difference over the steps; ``worst``: of which kind."""

    name: str
    biggest: float
    worst: str


def class_of(findings: Mapping[str, Any], tolerances: Sequence[float]) -> Numerics:
    """The class of numerics from what parity's steps found of the change.

    ``tolerances``: as ``tolerances_of``.
    """
    rounding, asked = tolerances[:2]
    entries = [(entry["largest"], f"{entry['kind']} {entry['name']}") for entry in findings["differences"]]
    biggest, worst = max(entries, default=(0.0, ""))
    if findings["initial"] or findings["apart"] or not biggest <= asked:
        return Numerics(DIFFERENT, biggest, worst)
    if biggest == 0:
        return Numerics(SAME_BITS, biggest, worst)
    return Numerics(WITHIN_ROUNDING if biggest <= rounding else AS_ASKED, biggest, worst)


def tolerances_of(own: float, asked: float) -> list[float]:
    """Relative differences that rounding explains, that the change asks for, and that double precision explains.

    ``own``, ``asked``: tolerances of the arms' precisions.
    """
    return [own, max(own, asked), FP64Option.tolerance]


def exact_difference(findings: Mapping[str, Any], tolerances: Sequence[float]) -> Numerics | None:
    """The same of steps in double precision; None if the arms round more than that, which then explains anything."""
    return None if findings["casts"] else class_of(findings, [FP64Option.tolerance, tolerances[2]])


def unlike_facts(
    base: Mapping[str, Any], change: Mapping[str, Any], differences: Mapping[str, Any], *, steps: bool
) -> Iterator[str]:
    """Sentences on what the change does to samples, dtypes and evaluation that makes a comparison unfair.

    ``differences``: of the configs, by key. ``steps``: whether both arms have to take the same steps, as for speed.
    """
    if change["overlap"] > base["overlap"]:
        yield (
            f"{change['overlap']} of the samples that the change evaluates are among its training samples "
            f"(base: {base['overlap']})"
        )
    if change["evaluated"] != base["evaluated"]:
        yield f"the change evaluates {change['evaluated']:,} samples, base {base['evaluated']:,}"
    elif change["val"] != base["val"]:
        yield "the change evaluates other samples than base"
    if steps:
        yield from _unlike_samples(base, change)
        if not any(key.startswith("precision.") for key in differences):
            yield from _unlike_precision(base, change)


def _unlike_samples(base: Mapping[str, Any], change: Mapping[str, Any]) -> Iterator[str]:
    if base["per_epoch"] != change["per_epoch"]:
        yield f"an epoch of the change has {change['per_epoch']} updates, of base {base['per_epoch']}"
    counts = enumerate(zip(base["samples_per_update"], change["samples_per_update"], strict=False), 1)
    if found := next(((number, pair) for number, pair in counts if pair[0] != pair[1]), None):
        number, (one, other) = found
        yield f"update {number} of the change takes {other} samples, of base {one}"
    elif base["order"] != change["order"] and base["per_epoch"] == change["per_epoch"]:
        yield "the change trains on other samples than base, or in another order"
    elif base["train"] != change["train"]:
        yield "the training samples of the change are not those of base"


def _unlike_precision(base: Mapping[str, Any], change: Mapping[str, Any]) -> Iterator[str]:
    if base["dtypes"] and (other := sorted(change["dtypes"].keys() - base["dtypes"].keys())):
        yield (
            f"the change computes in {', '.join(other)}, base in {', '.join(sorted(base['dtypes']))}, and no other "
            "precision was asked for"
        )
    if base["matmul"] != change["matmul"]:
        yield (
            f"the change sets torch's precision of float32 products to {change['matmul']}, base to {base['matmul']}, "
            "and no other precision was asked for"
        )
