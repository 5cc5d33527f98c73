"""Loops by hand and by ours, in turns in one process, on the same card at the same clocks."""

import gc
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch

BY_HAND, OURS, DDP = "by hand", "ours", "ours, ddp of one rank"

Loop = Callable[[], float]


class Times(NamedTuple):
    """Seconds of an update by each loop, in the order of its turns."""

    seconds: Mapping[str, list[float]]

    @property
    def drift(self) -> float:
        """By how much two turns by hand differ, relative to the shorter."""
        hand = self.seconds[BY_HAND]
        return max(hand) / min(hand) - 1

    def ratio(self, loop: str, *, of: str = BY_HAND) -> float:
        """Time of a loop divided by that of another one."""
        return min(self.seconds[loop]) / min(self.seconds[of])

    def __str__(self) -> str:
        words = (f"{name} {'/'.join(f'{1000 * s:.1f}' for s in seconds)} ms" for name, seconds in self.seconds.items())
        return ", ".join(words)


def in_turns(loops: Mapping[str, Loop]) -> Times:
    """Each loop twice, the first one first."""
    seconds: dict[str, list[float]] = {name: [] for name in loops}
    for name in [*loops, *loops]:
        seconds[name].append(loops[name]())
        torch.compiler.reset()
        gc.collect()
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()
        print(f"{name}: {1000 * seconds[name][-1]:.1f} ms", flush=True)
    return Times(seconds)
