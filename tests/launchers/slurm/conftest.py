"""A cluster for all tests of a process, empty before each; runs that are submitted from here."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from manyheads.launchers.launch import launch, prepare
from tests.launchers.conftest import PROJECT, Parent, freeze
from tests.launchers.slurm.cluster import Slurm, started
from tests.needs import require

COMMON = ("parallel=ddp", "launcher=slurm", "data.batch_size=48", "model.width=8", "trainer.device=cpu")
LONG = ("launcher.nodes=2", "launcher.nproc_per_node=1", "trainer.epochs=40", "trainer.log_every=2")
HELD = "launcher.lines=['#SBATCH --hold']"  # a job that never starts by itself


@pytest.fixture(scope="session")
def _cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    require("slurm")
    with started(tmp_path_factory.mktemp("slurm")) as cluster:
        yield cluster


@pytest.fixture
def cluster(_cluster: Slurm, monkeypatch: pytest.MonkeyPatch) -> Iterator[Slurm]:
    """With nothing in its queue; after the test too."""
    for name, value in _cluster.environment.items():
        monkeypatch.setenv(name, value)
    _cluster.clear()
    yield _cluster
    _cluster.clear()


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The weights of a long run that nothing has disturbed."""
    folder = freeze(tmp_path_factory.mktemp("undisturbed") / "run", *COMMON, "launcher=spawn", *LONG[2:])
    return launch(prepare(folder))["weights_sha256"]


@pytest.fixture
def submit(cluster: Slurm, parent: Callable[..., Parent], tmp_path: Path) -> Callable[..., Parent]:
    """Starts real commands that submit a run, and follow it."""
    return lambda name, *overrides: parent(tmp_path / name, *COMMON, f"hydra.run.dir={tmp_path / name}", *overrides)


def resumed(folder: Path) -> subprocess.CompletedProcess[str]:
    """``python -m runner resume``."""
    command = [sys.executable, "-m", "runner", "resume", str(folder)]
    return subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=100)
