"""Runs with code of the user's own, a package and a typed file, done again from another directory."""

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import manyheads
from manyheads.runner.provenance.copies import copies
from manyheads.runner.run.ledger import Ledger
from manyheads.runner.run.run_folder import RunFolder
from tests.conftest import FAST, RUN, Done, execute

pytestmark = pytest.mark.processes
NET = """
import torch

class Net(torch.nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.layer = torch.nn.Linear(12, num_classes)

    def forward(self, images):
        return self.layer(images.flatten(1))
"""
SHAPES = """
import torch

class Shapes:
    num_classes = 2

    def __init__(self, split):
        self.split = split

    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.full((3, 2, 2), index / 64), index % 2
"""
OWN = ("model=net.py:Net", "data=custom", "data._target_=my_shapes.Shapes", *(o for o in FAST if "width" not in o))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory) -> Path:
    """The run's folder, in the one where it was started; to be read only."""
    home = tmp_path_factory.mktemp("home")
    (home / "net.py").write_text(NET)
    (home / "my_shapes.py").write_text(SHAPES)
    done = execute(sys.executable, str(RUN), *OWN, "hydra.run.dir=past", cwd=home)
    assert done.code == 0, done.err
    return home / "past"


@pytest.fixture
def past(recorded, tmp_path) -> Path:
    """The run in another folder, far from where it was started."""
    return Path(shutil.copytree(recorded, tmp_path / "past"))


def command(*words: str, cwd: Path) -> Done:
    return execute(sys.executable, "-m", "manyheads.runner", *words, cwd=cwd)


@pytest.mark.tail
def test_it_is_found_where_the_run_was_started(past, tmp_path):
    done = command("reproduce", "past", "hydra.run.dir=again", cwd=tmp_path)
    assert done.code == 0, done.err
    assert "identical" in done.out
    assert "is used" not in done.out
    again = RunFolder(tmp_path / "again")
    assert json.loads(again.provenance.read_text())["directory"] == recorded_in(past)


def recorded_in(past: Path) -> str:
    return json.loads((past / "provenance.json").read_text())["directory"]


@pytest.fixture
def changed(recorded) -> Iterator[Path]:
    """The file of the model, which gives other outputs than in the run."""
    file = recorded.parent / "net.py"
    file.write_text(NET.replace("self.layer(images.flatten(1))", "0 * self.layer(images.flatten(1))"))
    yield file
    file.write_text(NET)


@pytest.mark.tail
def test_a_file_that_has_changed_is_replaced_by_its_copy(changed, past, tmp_path):
    done = command("reproduce", "past", "hydra.run.dir=again", cwd=tmp_path)
    assert done.code == 0, done.err
    assert f"{changed} has changed since the run: its copy {past}/code{changed} is used" in done.err
    assert "identical" in done.out


def test_its_weights_are_used_with_the_copy(changed, past, tmp_path):
    assert copies(RunFolder(past), RunFolder(past).read_config(), chosen={"model"}) == {}  # today's was asked for
    done = command("evaluate", "past", "--weights", "last", "hydra.run.dir=evaluated", cwd=tmp_path)
    assert done.code == 0, done.err
    scores = [RunFolder(path).read_result()["metrics"] for path in (past, tmp_path / "evaluated")]
    assert scores[0]["val_loss"] == scores[1]["val_loss"]
    assert manyheads.load(past).outputs(torch.ones(1, 3, 2, 2)).abs().sum() > 0


def test_resuming_elsewhere(past, tmp_path):
    folder = RunFolder(past)
    folder.result.unlink()
    file = Path(recorded_in(past)) / "net.py"
    file.write_text(NET + "# looked at again\n")
    try:
        done = command("resume", "past", cwd=tmp_path)
    finally:
        file.write_text(NET)
    assert done.code == 0, done.err
    assert folder.read_result()["status"] == "completed"
    assert f"{file} has changed since this run was started" in done.err


@pytest.mark.tail
def test_resuming_a_sweep_elsewhere(recorded, tmp_path):
    """Also a job that was never started, and so has recorded nothing."""
    command = (sys.executable, str(RUN), "-m", *OWN, "seed=1,2", f"hydra.sweep.dir={tmp_path}/sweep")
    done = execute(*command, cwd=recorded.parent)
    assert done.code == 0, done.err
    ledger = Ledger(tmp_path / "sweep")
    ledger.write(ledger.entries()[1].now("pending"))
    second = RunFolder(tmp_path / "sweep" / "1")
    for path in (second.result, second.provenance, second.last_checkpoint, second.best_checkpoint):
        path.unlink()
    done = execute(sys.executable, "-m", "manyheads.runner", "resume", "sweep", cwd=tmp_path)
    assert done.code == 0, done.err
    assert second.read_result()["status"] == "completed"
