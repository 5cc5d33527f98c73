"""How long training stops for a copy of 4 GB to the host: into new memory, and into pinned memory that is kept."""

import time
from collections.abc import Callable
from typing import TypeVar

import torch

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
    hosts, _ = timed("pinned, once", lambda: [torch.empty(part.shape, pin_memory=True) for part in parts], size)
    side = torch.cuda.Stream()

    def pinned() -> None:
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for host, part in zip(hosts, parts, strict=True):
                host.copy_(part, non_blocking=True)
        side.synchronize()

    return pageable / min(timed("pinned, kept, on a stream of its own", pinned, size)[1] for _ in "12")
