"""``resume <run> trainer.epochs=30``: a new run that goes on from an old one."""

import json
import shutil

import pytest

from manyheads.runner.commands.resume import continue_run, resume
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.child_command import ChildEnd
from manyheads.runner.run.run_folder import RunFolder
from tests.commands.run_folders import write_run


def test_a_run_goes_on_in_a_new_folder(finished_run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = {path: path.read_bytes() for path in finished_run.path.rglob("*") if path.is_file()}
    longer = continue_run(finished_run, ["trainer.max_steps=4", "name=longer", "hydra.run.dir=longer"])
    assert longer.path == tmp_path / "longer"
    assert (longer.read_result()["status"], longer.read_result()["steps"]) == ("completed", 4)
    assert longer.read_config()["name"] == "longer"
    assert json.loads(longer.provenance.read_text())["continued_from"] == str(finished_run.path)
    assert {path: path.read_bytes() for path in finished_run.path.rglob("*") if path.is_file()} == before


def test_what_is_complete_says_how_to_train_longer(finished_run, capsys):
    resume(str(finished_run.path))
    assert f"python -m runner resume {finished_run} trainer.max_steps=4" in capsys.readouterr().out
    for same in ("trainer.max_steps=2", "trainer.max_steps=1", "trainer.log_every=3"):
        with pytest.raises(ConfigurationError, match=r"is complete.*nothing is left.*trainer\.max_steps=4"):
            continue_run(finished_run, [same])


@pytest.mark.parametrize(("epochs", "is_more"), [("2", False), ("1", False), ("3", True)])
def test_by_epochs(tmp_path, monkeypatch, epochs, is_more):
    monkeypatch.chdir(tmp_path)
    folder = write_run(tmp_path / "it's", trainer={"epochs": 2, "max_steps": None, "stop_after": None})
    folder.result.write_text(json.dumps({"status": "completed", "epochs": 2, "steps": 40}))
    folder.provenance.unlink()  # there are no data to compare
    folder.checkpoints.mkdir()
    folder.last_checkpoint.touch()
    started = []
    monkeypatch.setattr(
        "manyheads.runner.commands.resume.Rerun.run",
        lambda *call: started.append(call[2:]) or ChildEnd(0, {}),
    )
    if is_more:
        assert continue_run(folder, [f"trainer.epochs={epochs}"]).path.parent.parent == tmp_path / "outputs"
        assert started[0][0] == f"trainer.epochs={epochs}"
    else:
        with pytest.raises(ConfigurationError, match=r"resume 'it'\"'\"'s' trainer\.epochs=4"):
            continue_run(folder, [f"trainer.epochs={epochs}"])
        assert not started


def test_what_cannot_be_gone_on_with_is_refused(finished_run, tmp_path):
    folder = RunFolder(shutil.copytree(finished_run.path, tmp_path / "copy"))
    with pytest.raises(ConfigurationError, match="continues from the run's own last checkpoint"):
        continue_run(folder, ["trainer.max_steps=4", "checkpoint.resume=/other.pt"])
    with folder.locked(), pytest.raises(ConfigurationError, match="by another process"):
        continue_run(folder, ["trainer.max_steps=4"])
    folder.last_checkpoint.unlink()
    with pytest.raises(ConfigurationError, match="no checkpoint to resume from.*Start over: python run.py"):
        continue_run(folder, ["trainer.max_steps=4"])
