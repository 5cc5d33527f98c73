"""A rank that measures the network: all-reduces of several payloads, alone and while it computes."""

import threading
import time
from collections.abc import Callable
from typing import NoReturn

import torch

from manyheads.runner.loop import rank_main as worker
from manyheads.runner.loop.clock import Stopwatch
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.parallel.rank.parallel import Parallel
from manyheads.runner.run.heartbeat import Heartbeat
from manyheads.runner.run.run_folder import RunFolder
from tests import cpu_quota
from tests.benchmarks.scaling.network_here import BESIDE, PAYLOADS

ROUNDS = 3
SECONDS = 0.2  # each is repeated for this long in each round, at least once
LONGEST = 1.5  # if an all-reduce takes longer, no larger payload is tried
WIDTH = 96  # of the matrices that are multiplied during exchanges
COMPUTED = 2.0  # seconds of computing for each second of exchanges beside it


def main(path: str) -> NoReturn:
    """Be one rank of a run whose network is measured. Ends the process. ``path``: the run folder."""
    worker.main(path, work=work)


def work(run: RunConfig, parallel: Parallel, folder: RunFolder, heartbeat: Heartbeat) -> None:
    """Write ``floors`` to result.json: the seconds of each payload in each round, and under BESIDE the slowdown."""
    cpu_quota.enter(parallel.rank)
    found: dict[str, list[float]] = {}
    for size in PAYLOADS:
        tensor = torch.zeros(size // 4, device=parallel.device)
        found[str(size)] = _rounds(parallel, heartbeat, lambda tensor=tensor: parallel.reduce(tensor))  # type: ignore[misc]
        if min(found[str(size)]) > LONGEST:
            break
    found[BESIDE] = [_slowdown(parallel, heartbeat, tensor, min(found[str(size)])) for _ in range(ROUNDS)]
    if parallel.records:
        folder.write_json(folder.result, {"status": "completed", "floors": found})


def _rounds(parallel: Parallel, heartbeat: Heartbeat, action: Callable[[], object]) -> list[float]:
    """Seconds of an action that all ranks take together, in each round."""
    seconds, found = _timed(parallel, heartbeat, action, 2), []
    for _ in range(ROUNDS):
        seconds = _timed(parallel, heartbeat, action, max(1, round(SECONDS / max(seconds, 1e-9))))
        found.append(seconds)
    return found


def _timed(parallel: Parallel, heartbeat: Heartbeat, action: Callable[[], object], count: int) -> float:
    clock = Stopwatch(parallel)
    clock.start()
    for _ in range(count):
        action()
        heartbeat.beat()
    return clock.stop() / count


def _slowdown(parallel: Parallel, heartbeat: Heartbeat, tensor: torch.Tensor, alone: float) -> float:
    """Seconds that computing loses for each second of a concurrent exchange. ``alone``: seconds of the exchange."""
    matrix = torch.rand(WIDTH, WIDTH, device=parallel.device) / WIDTH
    one = _timed(parallel, heartbeat, lambda: torch.mm(matrix, matrix), max(1, round(SECONDS / 1e-4)))
    exchanges = max(1, round(SECONDS / alone))
    products = max(1, round(COMPUTED * exchanges * alone / one))

    def exchange() -> None:
        for _ in range(exchanges):
            parallel.reduce(tensor)

    beside = threading.Thread(target=exchange)
    clock = Stopwatch(parallel)
    clock.start()
    began = time.perf_counter()
    beside.start()
    for _ in range(products):
        torch.mm(matrix, matrix)
        heartbeat.beat()
    seconds = torch.tensor([time.perf_counter() - began], dtype=torch.float64)
    beside.join()
    clock.stop()
    slowest = parallel.reduce(seconds.to(parallel.device), "max").item()
    return max(0.0, slowest - products * one) / (exchanges * alone)


if __name__ == "__main__":
    import sys

    main(sys.argv[1])
