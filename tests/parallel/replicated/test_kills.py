"""Replicas are killed at random, and nothing is lost: the run is the undisturbed one, with each sample counted once."""

import os
import random
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from manyheads.launchers.launch import launch
from manyheads.runner.run.heartbeat import RUNNING, Heartbeat
from manyheads.runner.run.run_folder import RunFolder
from tests.in_process import rows, small, train
from tests.tail import tail

pytest.importorskip("torchft")
pytestmark = pytest.mark.processes

RUN = (
    *("precision=fp64", "data.batch_size=26", "data.train_samples=208", "trainer.log_every=1", "optimizer=adamw"),
    *("trainer.grad_accumulation=2", "trainer.clip_norm=1.0", "optimizer.lr=0.01"),
)
REPLICATED = ("parallel=replicated", "parallel.trusted_network=true", "parallel.timeout=5")


class Killer(threading.Thread):
    """Kills replicas at random, ``kills`` times, each when all live and have made updates since."""

    def __init__(self, folder: RunFolder, *, kills: int, seed: int = 1, signum: int = signal.SIGKILL):
        super().__init__(daemon=True)
        self.folder, self.wanted, self.signum = folder, kills, signum
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
                    os.kill(heartbeat.pid(self.random.choice(ranks)), self.signum)
                    self.done += 1


def replicated(path: Path, *overrides: str, kills: int = 0) -> tuple[RunFolder, int]:
    """A run of replicas, and how many of them were killed."""
    folder = RunFolder(path)
    path.mkdir()
    folder.write_config(small(*RUN, *REPLICATED, *overrides))
    killer = Killer(folder, kills=kills)
    if kills:
        killer.start()
    launch(folder)
    return folder, killer.done


def assert_equal(one: RunFolder, other: RunFolder) -> None:
    """Every row of the tables and the weights, to what rounding in fp64 leaves."""
    for table, names in {"steps": ("step", "loss", "samples"), "epochs": ("train_loss", "val_loss")}.items():
        for name in names:
            before, after = ([float(row[name]) for row in rows(getattr(run, table))] for run in (one, other))
            assert after == pytest.approx(before, rel=0, abs=1e-12)
    before, after = (torch.load(run.last_checkpoint, weights_only=True)["model"] for run in (one, other))
    for name, weight in before.items():
        torch.testing.assert_close(after[name], weight, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("replicas", "epochs", "kills"), [tail(2, 40, 2, id="two"), tail(3, 160, 12, id="three, a dozen kills")]
)
def test_killed_at_random_it_is_the_undisturbed_run(tmp_path, replicas, epochs, kills):
    length = f"trainer.epochs={epochs}"
    alone = train(tmp_path / "alone", small(*RUN, length)).folder
    folder, killed = replicated(tmp_path / "killed", length, f"launcher.nproc_per_node={replicas}", kills=kills)
    assert killed == kills
    result = folder.read_result()
    assert len(result["restarts"]) >= kills
    assert result["samples_seen"] == 208 * epochs
    assert_equal(alone, folder)
