"""The best that the device keeps up: matrix products of each precision, and copying memory. Measured, not looked up."""

import time
from collections.abc import Callable

import torch

from tests.benchmarks.gpu.device import synchronize

SIDE = {"cuda": 8192, "cpu": 512}
COPIED = {"cuda": 2**32, "cpu": 2**26}  # bytes, many times the caches
ROUNDS, WARM_UP = 10, 3
LASTING = {"cuda": 1.5, "cpu": 0.0}  # seconds at least: after some, a GPU's clocks follow its power
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "tf32": torch.float32, "fp16": torch.float16}
OF_CPU = ("fp32", "bf16")


def of_precision(precision: str, device: str, *, is_tutorial: bool) -> str:
    """The ceiling that a row is held against. As torch leaves it, convolutions in fp32 use TF32."""
    if precision == "amp":
        return "fp16" if device == "cuda" else "bf16"
    return "tf32" if is_tutorial and device == "cuda" else precision


def measure(device: str) -> dict[str, float]:
    """``flops`` per second by the kind of number, as "fp32", ...; ``bytes``: read and written per second."""
    found = {name: _products(name, device) for name in DTYPES if device == "cuda" or name in OF_CPU}
    source = torch.empty(COPIED[device] // 4, device=device).normal_()
    target = torch.empty_like(source)
    seconds = _seconds(lambda: target.copy_(source), device)
    return {**found, "bytes": 2 * source.nbytes / seconds}


def _products(name: str, device: str) -> float:
    torch.set_float32_matmul_precision("high" if name == "tf32" else "highest")
    side = SIDE[device]
    # Random numbers: on zeros a GPU is quicker, since it takes less power.
    one, other = (torch.randn(side, side, device=device).to(DTYPES[name]) for _ in range(2))
    out = torch.empty_like(one)
    return 2 * side**3 / _seconds(lambda: torch.mm(one, other, out=out), device)


def _seconds(work: Callable[[], object], device: str) -> float:
    for _ in range(WARM_UP):
        work()
    synchronize(device)
    start, rounds, seconds = time.perf_counter(), 0, 0.0
    while not rounds or seconds < LASTING[device]:
        for _ in range(ROUNDS):
            work()
        synchronize(device)
        rounds, seconds = rounds + ROUNDS, time.perf_counter() - start
    return seconds / rounds
