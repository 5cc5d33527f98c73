"""How the change alters samples, dtypes or evaluation such that a comparison would be unfair, in sentences."""

from collections.abc import Iterator, Mapping
from typing import Any


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
