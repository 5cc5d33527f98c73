"""A GPU, or the CPU where the command is only tried out: waiting for it, and its memory."""

import time

import torch


def synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def reset_peak(device: str) -> None:
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()


def peak_bytes(device: str) -> int | None:
    """Most memory of tensors since the last reset; None where that is not counted."""
    return torch.cuda.max_memory_allocated() if device == "cuda" else None


class Stopwatch:
    """Seconds from after step ``first`` to after step ``last``, with the device's work done; called after each step."""

    def __init__(self, device: str, *, first: int, last: int):
        self.device, self.first, self.last = device, first, last
        self._times: list[float] = []

    def __call__(self, step: int) -> bool:
        """False: the trainer may ask whether a checkpoint is due."""
        if step in (self.first, self.last):
            synchronize(self.device)
            self._times.append(time.perf_counter())
            if step == self.first:
                reset_peak(self.device)
        return False

    @property
    def seconds_per_step(self) -> float:
        start, end = self._times
        return (end - start) / (self.last - self.first)
