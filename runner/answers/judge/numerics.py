"""Whether a change computes the same as base: compares samples, dtypes, and steps from the same states."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from manyheads.runner.answers.judge.question import Question
from manyheads.runner.answers.judge.rows import CHANGE, COMPLETED, EXACT, FACTS, FAILED, ROUND, STEPS, RunRow
from manyheads.runner.answers.judge.task import BATCH_STATISTICS
from manyheads.runner.option.run_config import RunConfig
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
    biggest, *place = max(entries, default=(0.0, "", ""))
    found = partial(Numerics, biggest=biggest, worst=" ".join(place))
    loss = max((size for size, kind, _ in entries if kind == "loss"), default=0.0)
    if findings["initial"] or findings["apart"] or not (biggest < math.inf and loss <= tolerances.asked):
        return found(DIFFERENT)
    if biggest <= tolerances.rounding:
        return found(WITHIN_ROUNDING if biggest else SAME_BITS)
    is_explained = biggest <= tolerances.asked if exact is None else exact.name != DIFFERENT
    if not is_explained:
        return found(DIFFERENT)
    return found(AS_ASKED if tolerances.asked > tolerances.rounding else WITHIN_ROUNDING)


def tolerances_of(base: RunConfig, change: RunConfig) -> list[float]:
    """Three relative differences that the options of both arms explain, in the order of a question's ``tolerances``.

    By rounding; by what the change asks for; and by BatchNorm: 0 unless the change shards batches differently.
    """
    rounding, other = (max(arm.precision.tolerance, arm.parallel.tolerance) for arm in (base, change))
    shares = [(arm.data_shares, arm.parallel.sync_batchnorm) for arm in (base, change)]
    return [rounding, max(rounding, other), 0.0 if shares[0] == shares[1] else change.parallel.tolerance_of_shares]


def explained(question: Question, rows: Sequence[RunRow]) -> Tolerances:
    """The differences that are explained; BatchNorm's only if an arm has BatchNorm over each rank's own samples."""
    rounding, asked, of_shares = question.tolerances
    if not any(row.findings[BATCH_STATISTICS] for row in rows if row.purpose == FACTS and row.state == COMPLETED):
        of_shares = 0.0
    return Tolerances(rounding, max(asked, of_shares), max(FP64Option.tolerance, of_shares))


def exact_numerics(question: Question, rows: Sequence[RunRow]) -> Numerics | None:
    """The class of numerics from steps in double precision; EQUAL before they are taken, and if they need not be.

    None if they say nothing: they failed or were left out, or a model casts to a lower precision itself, whose rounding
    explains any difference.
    """
    if question.changes_only_precision:
        return EQUAL
    tried = [row for row in rows if row.purpose == EXACT]
    taken = next((row for row in tried if row.arm == CHANGE and row.state == COMPLETED), None)
    if taken is not None:
        limit = explained(question, rows).exact
        return None if taken.findings["casts"] else class_of(taken.findings, Tolerances(limit, limit, limit), None)
    steps = max((row.number for row in rows if row.purpose == STEPS), default=0)
    is_over = any(row.purpose == ROUND and row.arm == CHANGE and row.number > steps for row in rows)
    return None if is_over or any(row.state == FAILED for row in tried) else EQUAL


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
