"""Ranks of a save without a process group: forks that exchange values through files, and can be killed anywhere."""

import os
import pickle
import time
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

FORKS = get_context("fork")


class Rank:
    """One of them. ``meeting``: a folder for what they tell each other; ``barrier``: of all."""

    shares_model = False

    def __init__(self, rank: int, world_size: int, meeting: Path, barrier: Any):
        self.rank, self.world_size = rank, world_size
        self._meeting, self._barrier, self._count = meeting, barrier, 0

    @property
    def records(self) -> bool:
        return self.rank == 0

    def gather(self, value: Any) -> list[Any]:
        self._count += 1
        own = self._meeting / f"{self._count}.{self.rank}"
        own.write_bytes(pickle.dumps(value))
        self._barrier.wait()
        others = [self._meeting / f"{self._count}.{rank}" for rank in range(self.world_size)]
        return [pickle.loads(path.read_bytes()) for path in others]


def together(count: int, work: Callable[[Rank], Any], meeting: Path) -> list[int | None]:
    """Let so many ranks do the work; when one has been killed, end all, as a launcher would. Their exit codes."""
    meeting.mkdir(parents=True, exist_ok=True)
    barrier = FORKS.Barrier(count)

    def rank(number: int) -> None:
        torch.set_num_threads(1)  # a fork has none of its parent's
        try:
            work(Rank(number, count, meeting, barrier))
        except BaseException as error:
            (meeting / f"error.{number}").write_text(f"{type(error).__name__}: {error}")
            os._exit(1)
        os._exit(0)

    processes = [FORKS.Process(target=rank, args=(number,)) for number in range(count)]
    for process in processes:
        process.start()
    while any(process.is_alive() for process in processes):
        if any(process.exitcode not in (None, 0) for process in processes):
            for process in processes:
                process.join(0.2)  # one that only waits for the dead would wait for ever
                process.kill()
        time.sleep(0.005)
    return [process.exitcode for process in processes]
