"""Predicts which micro-batches need more memory than a device has, from runs with smaller ones.

Beyond weights, gradients and the optimizer's state, what a rank keeps grows in proportion to the samples of a
micro-batch. So its peak memory is an affine function of their number, which two measurements determine. What fits by
this prediction is still measured, and proved before it may be chosen.
"""

from collections.abc import Callable, Collection, Iterable, Mapping

from manyheads.runner.answers.measure.rows import FAILED, RunRow
from manyheads.runner.answers.tune.budget import variant_of
from manyheads.runner.answers.tune.race import Variant
from manyheads.runner.errors import lacked_memory
from manyheads.runner.machine import hardware
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.wording import counted, size_in_words

PARTS = "trainer.grad_accumulation="


def too_large(candidate: Variant, run: Callable[[Variant], RunConfig], rows: Iterable[RunRow]) -> str:
    """Why the candidate's micro-batches need too much memory; empty if they may fit.

    ``run``: composes a configuration; ``rows``: of all runs; those count that differ from the candidate only in the
    number of micro-batches.
    """
    candidate_run, peaks, failed = run(candidate), dict[int, float](), set[int]()
    for row in rows:
        variant = variant_of(row.arm)
        if _without_parts(variant) != _without_parts(candidate):
            continue
        samples = run(variant).batch_per_rank
        if "peak_mb" in row.findings:
            peaks[samples] = max(row.findings["peak_mb"] * 2**20, peaks.get(samples, 0.0))
        elif row.state == FAILED and lacked_memory(row.reason or ""):
            failed.add(samples)
    memory = hardware.gpu_memory() if candidate_run.on_gpus else None
    return excess(
        candidate_run.batch_per_rank, peaks, failed, memory or hardware.memory_bytes() / candidate_run.launcher.ranks
    )


def _without_parts(variant: Variant) -> list[str]:
    return [setting for setting in variant if not setting.startswith(PARTS)]


def excess(samples: int, peaks: Mapping[int, float], failed: Collection[int], memory: float) -> str:
    """Why a micro-batch of this many samples needs too much memory; empty if it may fit.

    ``peaks``: by number of samples, the peak memory of a rank in bytes; ``failed``: the numbers that ran out of memory;
    ``memory``: of a device, in bytes.
    """
    if fewer := [count for count in failed if count <= samples]:
        return f"a micro-batch of {counted(min(fewer), 'sample')} ran out of memory"
    measured = sorted(count for count in peaks if count < samples)[-2:]
    if len(measured) < 2:
        return ""
    one, other = measured
    needed = peaks[other] + (peaks[other] - peaks[one]) / (other - one) * (samples - other)
    if needed <= memory:
        return ""
    return (
        f"a micro-batch of {counted(samples, 'sample')} would need about {size_in_words(needed)}, by what {one} and "
        f"{other} needed; a device has {size_in_words(memory)}"
    )
