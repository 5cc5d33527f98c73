"""How long training stops for a copy of 4 GB to the host: into new memory, and by a checkpoint's HostCopies."""

import time
from collections.abc import Callable
from typing import TypeVar

import torch

from manyheads.runner.checkpoint.rank.host_copies import HostCopies

T = TypeVar("T")
COUNT, SIZE = 200, 5_000_000  # tensors, and numbers of 4 bytes in each


def synchronize() -> None:
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def timed(name: str, copy: Callable[[], T], size: int) -> tuple[T, float]:
    synchronize()
    began = time.perf_counter()
    copied = copy()
    synchronize()
    seconds = time.perf_counter() - began
    print(f"{name:36s} {seconds:6.2f} s {4 * COUNT * size / seconds / 1e9:6.1f} GB/s", flush=True)
    return copied, seconds


def ratio(*, rehearses: bool) -> float:
    """Seconds of the pageable copy divided by those of the pinned one; 0 in a rehearsal, which pins nothing."""
    size, device = (1000, "cpu") if rehearses else (SIZE, "cuda")
    parts = [torch.randn(size, device=device) for _ in range(COUNT)]
    if rehearses:
        timed("new memory", lambda: [part.to("cpu", copy=True) for part in parts], size)
        return 0.0
    pageable = min(timed("new memory", lambda: [part.to("cpu", copy=True) for part in parts], size)[1] for _ in "12")
    memory = HostCopies(2 * 4 * COUNT * size, print)
    pinned = lambda: memory.of(parts, lambda tensor: tensor)  # noqa: E731
    hosts, _ = timed("pinned for the first time", pinned, size)
    if not all(host.is_pinned() and torch.equal(host, part.cpu()) for host, part in zip(hosts, parts, strict=True)):
        raise AssertionError("a copy is not in pinned memory, or has other values")
    return pageable / min(timed("pinned, kept", pinned, size)[1] for _ in "12")
