"""Runs and ranks that are killed at any moment: never more at once than there is room for, and nothing is left."""

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.conftest import FAST, ROOT, RUN
from tests.launchers.companions.room.client import JOBS
from tests.launchers.companions.room.conftest import numbers

pytestmark = [pytest.mark.ci, pytest.mark.processes]
CLIENTS = range(4)
CORES = sorted(os.sched_getaffinity(0))[:2]


def start(folder: Path, client: int) -> subprocess.Popen:
    words = [sys.executable, "-m", "tests.launchers.companions.room.client", str(folder), str(client)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / ".names"), str(ROOT)])}
    return subprocess.Popen([*words, ",".join(map(str, CORES))], cwd=ROOT, env=environment)


@pytest.mark.skipif(len(CORES) < 2, reason="needs two cores")
def test_four_clients_whose_processes_are_killed_share_two_cores(registry, tmp_path):
    for name in ("running", "crowded", "done"):
        (tmp_path / name).mkdir()
    chance = random.Random(0)
    clients = {number: start(tmp_path, number) for number in CLIENTS}
    kills = 0
    try:
        while any(client.poll() != 0 for client in clients.values()):
            time.sleep(chance.uniform(0.1, 0.6))
            for number, client in clients.items():
                if client.poll() not in (None, 0):
                    assert client.poll() == -signal.SIGKILL
                    clients[number] = start(tmp_path, number)
            victim = chance.choice([*clients.values()])
            with suppress(psutil.NoSuchProcess):
                process = psutil.Process(victim.pid)
                ranks = process.children()
                if kills < 40 and (ranks or chance.random() < 0.1):
                    chance.choice([process, *ranks]).kill()
                    kills += 1
    finally:
        for client in clients.values():
            client.kill()
            client.wait()
    assert kills > 5  # idle cores end the clients sooner
    assert [path.read_text() for path in (tmp_path / "crowded").iterdir()] == []
    assert len([*(tmp_path / "done").iterdir()]) == len(CLIENTS) * JOBS
    assert numbers(registry) == []
    assert list(registry.path.iterdir()) == []


def holding(registry, count: int) -> list:
    """The claims, once as many runs hold devices."""
    deadline = time.monotonic() + 100
    while time.monotonic() < deadline:
        with registry.turn() as claims:
            if len(held := [claim for claim in claims if claim.devices]) == count:
                return held
        time.sleep(0.05)
    raise TimeoutError(f"never {count}: {claims}")


def test_a_run_whose_processes_are_killed_leaves_its_devices_to_the_next(registry, tmp_path):
    """The parent is killed, and with it its ranks and their loaders, before they have said anything."""
    words = [sys.executable, str(RUN), *FAST, "trainer.max_steps=100000", "launcher.devices=free", "parallel=ddp"]
    words += ["launcher.nproc_per_node=1", f"launcher.threads_per_rank={len(os.sched_getaffinity(0))}"]
    words += ["launcher=spawn", "data.num_workers=1"]
    first = subprocess.Popen([*words, f"hydra.run.dir={tmp_path / 'first'}"], stdout=subprocess.DEVNULL)
    second = None
    try:
        holding(registry, 1)
        second = subprocess.Popen([*words, f"hydra.run.dir={tmp_path / 'second'}"], stdout=subprocess.DEVNULL)
        steps = tmp_path / "first" / "steps.csv"
        while not (steps.exists() and steps.read_text().count("\n") > 1):
            assert first.poll() is None
            time.sleep(0.1)
        first.kill()
        while (held := holding(registry, 1))[0].run != str(tmp_path / "second"):
            time.sleep(0.05)
        assert held[0].pid == second.pid
        second.send_signal(signal.SIGTERM)
        assert second.wait(timeout=60) == 143
        assert numbers(registry) == []
    finally:
        for process in filter(None, (first, second)):
            process.kill()
            process.wait()
