"""Memory that is held: by a run's ranks, beside what is estimated, and on the card by all processes."""

import time

from manyheads.runner.answers.measure.rank.rehearsal import rehearse
from manyheads.runner.machine import gpus, hardware
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.run.run_folder import RunFolder

KINDS = ("parameters", "gradients", "optimizer")
TOLERANCE = 64  # MB that the driver may keep
PATIENCE = 15  # s for the driver to free what ended processes held


def unlike_estimate(folder: RunFolder) -> str:
    """Bytes that a rank of a run held otherwise than estimated; empty if there are none."""
    run, held = RunConfig.read(folder), folder.read_result()["held_bytes"]
    first = rehearse(run, 0, follows=False)
    for rank in (0, *filter(None, first.unlike)):
        holds = first.holds if rank == 0 else rehearse(run, rank, follows=False).holds
        for kind in KINDS:
            if held[kind][rank] != getattr(holds, kind):
                return f"rank {rank} held {held[kind][rank]:,} bytes of {kind}, estimated {getattr(holds, kind):,}"
    return ""


def card_memory() -> float | None:
    """MB in use on the card by all processes; None without a GPU."""
    with gpus.session() as nvml:
        if nvml is None or not hardware.gpu_ids():
            return None
        info = gpus.asked(nvml.nvmlDeviceGetMemoryInfo, nvml.nvmlDeviceGetHandleByUUID(hardware.gpu_ids()[0]))
        return None if info is None else info.used / 2**20


def still_held(before: float | None) -> float | None:
    """MB in use on the card beyond ``before``, once ended processes had time to free theirs; None without a GPU."""
    latest = time.monotonic() + PATIENCE
    while (now := card_memory()) is not None and before is not None:
        if now - before <= TOLERANCE or time.monotonic() > latest:
            return now - before
        time.sleep(0.5)
    return None
