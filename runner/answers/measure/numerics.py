"""Whether two arms compute the same: samples, dtypes, evaluation, and the class of numerics of their steps."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

SAME_BITS, WITHIN_ROUNDING, AS_ASKED, DIFFERENT = "same bits", "within rounding", "as asked", "different"
CLASSES = {
    SAME_BITS: "the same numbers to the last bit",
    WITHIN_ROUNDING: "the same numbers within rounding",
    AS_ASKED: "the same numbers within the tolerance of what was asked for",
    DIFFERENT: "different numbers",
}


@dataclass(frozen=True)
class Numerics:
    """How far the steps of both arms agree.

    ``name``: a key of CLASSES. ``biggest``: the largest relative difference. ``worst``: where it is: kind and name.
    """

    name: str
    biggest: float
    worst: str


EQUAL = Numerics(SAME_BITS, 0.0, "")  # of steps that have not been taken: they are assumed to agree


class Tolerances(NamedTuple):
    """The largest relative differences that are not attributed to different computations.

    ``rounding``: by base's own rounding; ``asked``: by what the change asks for; ``exact``: in double precision.
    """

    rounding: float
    asked: float
    exact: float


def class_of(findings: Mapping[str, Any], tolerances: Tolerances, exact: Numerics | None) -> Numerics:
    """The class of numerics that follows from the findings of parity's steps.

    ``exact``: what follows from the same steps in double precision; None if these say nothing. They decide about
    gradients, weights and buffers, of which a tenth may change where the last bit decides whether a ReLU is active or
    which pixel is the largest. In double precision that hardly ever happens.
    """
    entries = [(entry["largest"], entry["kind"], entry["name"]) for entry in findings["differences"]]
    biggest, kind, name = max(entries, default=(0.0, "", ""))
    return Numerics(_name_of(findings, biggest, tolerances, exact), biggest, f"{kind} {name}".strip())


def _name_of(findings: Mapping[str, Any], biggest: float, tolerances: Tolerances, exact: Numerics | None) -> str:
    loss = max((entry["largest"] for entry in findings["differences"] if entry["kind"] == "loss"), default=0.0)
    if findings["initial"] or findings["apart"] or not (biggest < math.inf and loss <= tolerances.asked):
        return DIFFERENT
    if biggest <= tolerances.rounding:
        return WITHIN_ROUNDING if biggest else SAME_BITS
    is_explained = biggest <= tolerances.asked if exact is None else exact.name != DIFFERENT
    if not is_explained:
        return DIFFERENT
    return AS_ASKED if tolerances.asked > tolerances.rounding else WITHIN_ROUNDING


def unlike_facts(
    base: Mapping[str, Any], change: Mapping[str, Any], differences: Mapping[str, Any], *, steps: bool
) -> Iterator[str]:
    """How the change alters samples, dtypes or evaluation such that a comparison would be unfair, in sentences.

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
    if unlike := next(((number, pair) for number, pair in counts if pair[0] != pair[1]), None):
        number, (one, other) = unlike
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
