"""`manyheads publish`: which runs, to which tracker, with whose settings."""

import json
import sys

import pytest

from manyheads.runner.app import main
from manyheads.runner.run.ledger import Entry, Ledger
from manyheads.runner.run.progress import EVENT
from manyheads.runner.run.run_folder import RunFolder
from tests.callbacks.tracking import only, runs
from tests.commands.test_interrupted import HELD, interrupted, told


@pytest.fixture
def publish(monkeypatch, capsys):
    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["manyheads", "publish", *map(str, arguments)])
        capsys.readouterr()
        return main(), *capsys.readouterr()

    return run


def test_a_run_goes_where_its_config_says_or_where_one_says(finished, place, publish, tmp_path):
    code, said, _ = publish(finished.path, f"logger.kept.place={place}")
    assert code == 0
    assert f"published to kept: kept://{runs(place)[0].name}" in said
    assert only(place, "close")[0]["status"] == "completed"


def test_programs_see_how_far_it_is(finished, place, monkeypatch, capfd):
    monkeypatch.setenv("MANYHEADS_PROGRESS", "json")
    assert main(["publish", str(finished.path), f"logger.kept.place={place}"]) == 0
    events = [json.loads(line) for line in capfd.readouterr().err.splitlines() if line.startswith(EVENT)]
    assert [(each["what"], each["done"], each["total"]) for each in events] == [("publishing", n, 1) for n in (0, 1)]


@pytest.mark.tail
@pytest.mark.processes
def test_ctrl_c_says_what_is_kept(finished, place, tmp_path):
    held = tmp_path / "held"
    words = (*HELD, "manyheads.runner.commands.publish:Publisher", "publish", str(finished.path))
    done, left = interrupted(
        *words, f"logger.kept.place={place}", "--json", cwd=tmp_path, held=held.exists, HELD=str(held)
    )
    assert told(done, "publish") == "publishing: what has been sent is recorded and not sent again"
    assert left == []
    assert not runs(place)


def test_the_jobs_of_a_sweep_each_are_a_run(finished, place, publish, tmp_path):
    Ledger(tmp_path).create({}, Entry(0, "run", ["seed=1"], state="completed"), Entry(1, "absent", ["seed=2"]))
    code, said, _ = publish(tmp_path, f"logger.kept.place={place}")
    assert (code, said.count("published to kept")) == (0, 1)


def test_a_tracker_that_is_away_is_told_with_the_command_to_repeat(finished, place, publish):
    (place / "away").touch()
    code, _, said = publish(finished.path, f"logger.kept.place={place}")
    assert code == 1
    assert "ConnectionError: http://***@tracker cannot be reached" in said
    assert f"publish {finished.path} logger.kept.place={place}" in said


def test_a_run_of_others_says_neither_where_to_publish_nor_by_what_code(
    finished, place, publish, monkeypatch, tmp_path
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another"))  # whose key has sealed nothing
    code, _, said = publish(RunFolder(finished.path).path)
    assert code == 2
    assert "names no tracker. Choose one: --to" in said
    assert not runs(place)


@pytest.mark.needs("mlflow", "wandb")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--to", "mlflwo"), "--to mlflwo: there is no such tracker. Allowed: kept, mlflow"),
        (("--to", "mlflow", "logger.mlflow.tracking_uri=http://me:secret@host"), "without user and password"),
        (("--to", "mlflow", "logger.mlflow.uri=http://host"), "logger.mlflow.uri is not a key"),
        (("--to", "wandb", "logger.wandb.project=a/b"), "without a slash"),
        (("--to", "mlflow", "logger.wandb.project=a"), "logger.wandb.project: nothing is published to this tracker"),
        (("logger.=1",), "is not allowed. Allowed: the keys of a tracker"),
    ],
)
def test_mistakes_are_refused_before_anything_is_sent(finished, publish, arguments, message):
    code, _, said = publish(finished.path, *arguments)
    assert code == 2
    assert message in said


def test_a_link_in_a_run_leads_nowhere(finished, place, publish, tmp_path):
    (tmp_path / "secret").write_text("key")
    (finished.path / "pictures").mkdir()
    (finished.path / "pictures" / "a.png").symlink_to(tmp_path / "secret")
    code, _, said = publish(finished.path, f"logger.kept.place={place}")
    assert code == 2
    assert "outside" in said
    assert json.loads(finished.provenance.read_text())["id"] not in {path.name for path in runs(place)}
