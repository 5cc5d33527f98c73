"""Runs of replicas that are disturbed, and what they must be equal to."""

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from manyheads.launchers.launch import launch, prepare
from manyheads.runner.run.heartbeat import RUNNING, Heartbeat
from manyheads.runner.run.run_folder import RunFolder
from tests.in_process import rows, small, train

SAMPLES = 208
RUN = (
    *("precision=fp64", "data.batch_size=26", f"data.train_samples={SAMPLES}", "trainer.log_every=1"),
    *("trainer.grad_accumulation=2", "trainer.clip_norm=1.0", "optimizer=adamw", "optimizer.lr=0.01"),
)
PACED = ("data=custom", "data._target_=tests.parallel.replicated.faults.Paced", "data.num_workers=0")
PACE = "+data.seconds=0.002"
IF_TORCHFT = pytest.mark.needs("torchft")
REPLICATED = ("parallel=replicated", "parallel.trusted_network=true", "parallel.timeout=5")


class Killer(threading.Thread):
    """Kills ranks at random, ``kills`` times, each when all live and have made updates since.

    ``only``: the ranks to choose from; None for all. ``together``: number of adjacent ranks that are killed together.
    ``hit``: called instead with a rank's process id.
    """

    def __init__(
        self,
        folder: RunFolder,
        *,
        kills: int,
        seed: int = 1,
        only: tuple[int, ...] | None = None,
        together: int = 1,
        hit: Callable[[int], Any] = lambda pid: os.kill(pid, signal.SIGKILL),
    ):
        super().__init__(daemon=True)
        self.folder, self.wanted, self.only, self.together, self.hit = folder, kills, only, together, hit
        self.random = random.Random(seed)
        self.done = 0

    def run(self) -> None:
        while self.done < self.wanted:
            time.sleep(0.05)
            with suppress(OSError, ValueError):
                heartbeat = Heartbeat(self.folder.heartbeat)
                ranks = range(heartbeat.ranks)
                before = [heartbeat.read(rank)[0] for rank in ranks]
                time.sleep(self.random.uniform(0.1, 0.6))
                moved = all(heartbeat.read(rank)[0] > before[rank] for rank in ranks)
                if moved and all(heartbeat.state(rank) == RUNNING for rank in ranks):
                    first = self.random.choice(self.only or ranks) // self.together * self.together
                    for rank in range(first, first + self.together):
                        self.hit(heartbeat.pid(rank))
                    self.done += 1


def undisturbed(path: Path, *overrides: str) -> RunFolder:
    """The same run by one process."""
    return train(path, written(*overrides)).folder


def written(*overrides: str) -> dict[str, Any]:
    """The config of such a run; ``overrides`` may name other data."""
    return small(*own(overrides), *overrides)


def own(overrides: tuple[str, ...]) -> tuple[str, ...]:
    """RUN without what only its own data have, where ``overrides`` name others."""
    is_other = any(each.startswith("data=") for each in overrides)
    return tuple(each for each in RUN if not (is_other and "train_samples" in each))


def replicated(path: Path, *overrides: str, kills: int = 0, **how: Any) -> tuple[RunFolder, int]:
    """A run of replicas, and how often some were killed; ``how``: as for ``Killer``."""
    folder = RunFolder(path)
    path.mkdir()
    folder.write_config(written(*REPLICATED, *overrides))
    killer = Killer(folder, kills=kills, **how)
    if kills:
        killer.start()
    launch(prepare(folder))
    return folder, killer.done


def assert_equal(one: RunFolder, other: RunFolder) -> None:
    """Every row of the tables and the weights, to what rounding in fp64 leaves; each sample counted once."""
    for table, names in {"steps": ("step", "loss", "samples"), "epochs": ("train_loss", "val_loss")}.items():
        for name in names:
            before, after = ([float(row[name]) for row in rows(getattr(run, table))] for run in (one, other))
            assert after == pytest.approx(before, rel=0, abs=1e-12)
    for path in ("last_checkpoint", "best_checkpoint"):
        before, after = (torch.load(getattr(run, path), weights_only=True)["model"] for run in (one, other))
        for name, weight in before.items():
            torch.testing.assert_close(after[name], weight, rtol=0, atol=1e-12)
    assert other.read_result()["samples_seen"] == one.read_result()["samples_seen"]
