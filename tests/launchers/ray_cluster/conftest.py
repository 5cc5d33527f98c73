"""Runs on the real Ray cluster of a test file, and what they leave behind."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import psutil
import pytest

from manyheads.launchers.launch import launch, prepare
from manyheads.runner.run.run_folder import RunFolder
from tests.launchers.conftest import freeze, rows
from tests.launchers.ray_cluster.cluster import cluster
from tests.needs import require

RUN = ("data.batch_size=48", "model.width=8", "precision=fp64", "trainer.log_every=1")
LONG = (*RUN, "trainer.epochs=10", "checkpoint.every=20")


@pytest.fixture(autouse=True, scope="module")
def _ray() -> None:
    require("ray")


@pytest.fixture(scope="module")
def machines() -> Iterator[Any]:
    """Two nodes with a CPU each."""
    with cluster(nodes=2) as made:
        yield made


def on(machines: Any, *overrides: str) -> tuple[str, ...]:
    """Overrides for a rank on each of two nodes."""
    ray = ("parallel=ddp", "launcher=ray", "launcher.nodes=2", "launcher.nproc_per_node=1")
    return (*ray, f"launcher.address={machines.address}", *overrides)


def asked(address: str, expression: str) -> Any:
    """What Ray answers, from a process of its own."""
    script = f"""import json, ray
ray.init(address={address!r}, log_to_driver=False, logging_level="ERROR")
print(json.dumps({expression}))"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.strip().splitlines()[-1])


def free(address: str) -> float:
    """The CPUs that are free in the cluster."""
    return asked(address, 'ray.available_resources().get("CPU", 0)')


def left(folder: RunFolder, machines: Any) -> tuple[list[psutil.Process], float, list[str]]:
    """What a run has left: its processes, the CPUs that are free again, and placement groups."""
    groups = 'each["state"] for each in ray.util.placement_group_table().values()'
    held = asked(machines.address, f'[{groups} if each["state"] != "REMOVED"]')
    return ours(folder), free(machines.address), held


def ours(folder: RunFolder) -> list[psutil.Process]:
    """Processes whose command line names the run's folder."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        with suppress(psutil.NoSuchProcess):
            if str(folder.path) in " ".join(process.info["cmdline"] or []) and process.pid != os.getpid():
                found.append(process)
    return found


def rank_of(folder: RunFolder, rank: int) -> psutil.Process:
    """The process of a rank, by its title."""
    title = f"manyheads: rank {rank}/"
    return next(each for each in ours(folder) if title in " ".join(each.cmdline()))


def when_at(folder: RunFolder, step: int, act: Callable[[], None]) -> threading.Thread:
    """Do this in the background once the run has made so many updates."""

    def watch() -> None:
        while True:
            time.sleep(0.05)
            with suppress(OSError, IndexError, ValueError, StopIteration):
                if int(rows(folder.steps)[-1]["step"]) >= step:
                    act()
                    return

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunFolder, dict[str, Any]]:
    """The long run by ranks on this machine alone."""
    folder = freeze(tmp_path_factory.mktemp("undisturbed") / "run", *LONG, "parallel=ddp")
    return folder, launch(prepare(folder))
