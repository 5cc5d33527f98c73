"""The class of numerics: how far the steps of two arms from the same states agree."""

import math
from collections.abc import Mapping
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
