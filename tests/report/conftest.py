"""One real run, made once, and sweeps of copies of it whose files are edited."""

import sys
from pathlib import Path

import pytest

from manyheads.runner.run.run_folder import RunFolder
from tests.conftest import RUN, execute
from tests.report.sweep import Sweep

# Three epochs of ten updates, five rows of steps.csv in each.
REAL = (
    *("data=synthetic", "data.image_size=8", "data.num_classes=3", "data.train_samples=80", "data.val_samples=20"),
    *("data.batch_size=8", "model.width=2", "optimizer.lr=0.05", "trainer.epochs=3", "trainer.log_every=2"),
    *("trainer.device=cpu", "launcher.threads_per_rank=1", "checkpoint.every=0"),
)


@pytest.fixture(scope="session")
def real_run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A completed run of parallel=single; to be read only."""
    folder = RunFolder(tmp_path_factory.mktemp("report") / "run")
    done = execute(sys.executable, str(RUN), *REAL, f"hydra.run.dir={folder.path}", cwd=folder.path.parent)
    assert done.code == 0, done.err
    return folder


@pytest.fixture
def sweep(tmp_path: Path, real_run: RunFolder) -> Sweep:
    """An empty sweep with a ledger."""
    return Sweep(tmp_path / "sweep", real_run)
