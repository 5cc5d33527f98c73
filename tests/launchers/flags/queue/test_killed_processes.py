"""Clients, workers, runs and ranks that are killed at any moment: nothing is lost or doubled, there is never too much.

python -m tests.launchers.flags.queue.test_killed_processes JOBS SECONDS KILLS  # at another size, in a new folder
"""

import os
import random
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from manyheads.launchers.companions.room.registry import current_claims
from manyheads.launchers.flags.queue.entries import QUEUE, RunQueue
from manyheads.runner.run.run_folder import RunFolder
from tests.launchers.flags.queue.stand_in import SEEN, start

pytestmark = [pytest.mark.ci, pytest.mark.processes]
CLIENTS, WORKERS = ("a", "b", "c", "d"), range(3)
KINDS = ("client", "worker", "run", "rank")
CORES = sorted(os.sched_getaffinity(0))[:2]


class Desk:
    """Clients and workers in the working directory; one that was killed is started again."""

    def __init__(self, jobs: int, seconds: float):
        self._words = [("client", name, jobs, seconds) for name in CLIENTS]
        self._words += [("worker", ",".join(map(str, CORES)))] * len(WORKERS)
        self._processes = [start(*words) for words in self._words]
        self.kills: Counter[str] = Counter()

    def __enter__(self) -> "Desk":
        for name in ("running", "done"):
            (SEEN / name).mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    def restart(self) -> bool:
        """Start again what was killed; returns whether all clients are done and the queue is empty."""
        for number, process in enumerate(self._processes):
            if process.poll() not in (None, 0):
                assert process.poll() == -9
                self._processes[number] = start(*self._words[number])
        clients = self._processes[: len(CLIENTS)]
        return all(client.poll() == 0 for client in clients) and not [*QUEUE.iterdir()]

    def kill(self, kind: str, chance: random.Random) -> None:
        """Kill one process of a kind, if there is one: a client, a worker, a run or its rank."""
        processes = [psutil.Process(process.pid) for process in self._processes if process.poll() is None]
        clients, workers = processes[: -len(WORKERS)], processes[-len(WORKERS) :]
        with suppress(psutil.NoSuchProcess):
            runs = [run for worker in workers for run in worker.children()]
            ranks = [rank for run in runs for rank in run.children()]
            if victims := {"client": clients, "worker": workers, "run": runs, "rank": ranks}[kind]:
                victim = chance.choice(victims)
                if victim.status() != psutil.STATUS_ZOMBIE:
                    victim.kill()
                    self.kills[kind] += 1


def carried_out(jobs: int, seconds: float, kills: int) -> Counter[str]:
    """Have all clients' jobs run, with this many kills; returns which processes were killed."""
    chance = random.Random(0)
    every = len(CLIENTS) * jobs * seconds / 2 / (1.2 * kills)
    SEEN.mkdir()
    with Desk(jobs, seconds) as desk:
        while not desk.restart():
            time.sleep(chance.uniform(0.5, 1.5) * every)
            if desk.kills.total() < kills:
                desk.kill(chance.choice(KINDS), chance)
    return desk.kills


def noted(what: str) -> list[str]:
    return (SEEN / what).read_text().split() if (SEEN / what).exists() else []


def check(jobs: int) -> dict[str, int]:
    """What must hold once the queue is empty; returns how many runs ended with each status."""
    names = {f"{client}.{number}" for client in CLIENTS for number in range(jobs)}
    statuses = {name: (RunFolder(f"outputs/{name}").read_result() or {}).get("status") for name in names}
    assert set(statuses.values()) <= {"completed", "failed"}
    done = {path.name for path in (SEEN / "done").iterdir()}
    assert {name for name in names if statuses[name] == "completed"} <= done
    assert (noted("crowded"), noted("doubled")) == ([], [])
    assert current_claims()[0] == []
    queued, begun = [*dict.fromkeys(noted("queued"))], [*dict.fromkeys(noted("begun"))]
    for wide in {f"{client}.{jobs // 2}" for client in CLIENTS} & {*queued} & {*begun}:
        later = {*queued[queued.index(wide) + 1 :]}
        assert later.isdisjoint(begun[: begun.index(wide)]), f"{wide} was overtaken"
    return Counter(str(status) for status in statuses.values())


@pytest.mark.skipif(len(CORES) < 2, reason="needs two cores")
def test_four_clients_and_three_workers_share_two_cores(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MANYHEADS_LEASES", str(tmp_path / "leases"))
    killed = carried_out(jobs=5, seconds=0.3, kills=10)
    assert killed.total() == 10
    assert check(5)["failed"] <= killed["rank"] + killed["run"]
    with RunQueue.created() as queue, queue.turn():
        assert [*queue.entries()] == []
    assert [*(tmp_path / "leases").iterdir()] == []


if __name__ == "__main__":
    os.chdir(folder := Path(tempfile.mkdtemp(prefix="queue-")))
    os.environ |= {"MANYHEADS_LEASES": str(folder / "leases"), "MANYHEADS_STATE": str(folder / "state")}
    begun = time.monotonic()
    kills = carried_out(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))
    seconds = time.monotonic() - begun
    print(f"{seconds:.0f} s, killed {dict(kills)}", flush=True)
    print(f"ended {dict(check(int(sys.argv[1])))}, left {[*(folder / 'leases').iterdir()]}")
