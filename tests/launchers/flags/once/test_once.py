"""``train --once`` by real processes: what is asked for twice is run once, unless something that counts has changed."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import manyheads
from manyheads.runner.errors import ExitCode
from manyheads.runner.run.run_folder import RunFolder
from tests.conftest import RUN, held
from tests.launchers.flags.once.desk import NET, WORDS, Desk

pytestmark = [pytest.mark.processes, pytest.mark.ci]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """With one run, which tests may ask for and add others to."""
    desk = Desk(tmp_path_factory.mktemp("desk"))
    desk.first = desk.answer("hydra.run.dir=outputs/first")
    return desk


def test_twenty_at_once_make_one_run(desk):
    command = [sys.executable, str(RUN), "--once", *WORDS, "--json"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    asked = [subprocess.Popen(command, cwd=desk.folder, **pipes) for _ in range(20)]
    answers = [json.loads(process.communicate(timeout=280)[0]) for process in asked]
    assert {answer["result"]["folder"] for answer in answers} == {str(path) for path in desk.runs()}
    assert len(desk.runs()) == 1


@pytest.mark.parametrize(
    "words",
    [
        pytest.param([], id="nothing"),
        pytest.param(["logger=[tensorboard]"], id="logger"),
        pytest.param(["hydra.run.dir=outputs/other"], id="folder"),
        pytest.param(["data.num_workers=1"], id="loader processes"),
        pytest.param(["name=again", "tags=[night]"], id="name"),
    ],
)
def test_what_changes_no_result_starts_nothing(shared, words):
    before = shared.runs()
    assert shared.answer(*words) == shared.first
    assert shared.runs() == before


@pytest.mark.parametrize("words", [["seed=2"], ["launcher.threads_per_rank=2"], ["optimizer.lr=0.3"]])
def test_what_may_change_the_result_is_another_run(shared, words):
    folder = shared.answer(*words)
    assert folder != shared.first
    assert shared.answer(*words) == folder


def test_changed_code_and_changed_data_of_the_same_size_are_other_runs(desk):
    first = desk.answer()
    table = desk.table.read_text()
    desk.table.write_text(table.replace("\n0,0,yes\n", "\n9,0,yes\n", 1))
    assert desk.table.stat().st_size == len(table)
    second = desk.answer()
    (desk.folder / "net.py").write_text(NET + "\n# another version\n")
    third = desk.answer()
    assert len({first, second, third}) == 3
    assert desk.answer() == third


def test_by_contents_a_file_that_was_only_touched_is_the_same(desk):
    first = desk.answer("data.fingerprint=contents")
    os.utime(desk.table)
    assert desk.answer("data.fingerprint=contents") == first


def test_a_run_that_was_killed_is_resumed(desk):
    desk.fault.write_text("kill 5")
    assert desk.ask().code == -signal.SIGKILL
    [folder] = desk.runs()
    assert RunFolder(folder).read_result() is None
    assert desk.answer() == str(folder)
    assert "resuming from" in (folder / "run.log").read_text() or RunFolder(folder).read_result()["epochs"] == 2


def test_a_failure_is_tried_again_unless_it_is_accepted(desk):
    desk.fault.write_text("raise 2")
    assert desk.ask().code == ExitCode.FAILED
    [failed] = desk.runs()
    done = desk.ask("--accept-failed")
    answer = json.loads(done.out)
    assert (done.code, answer["result"]["folder"]) == (ExitCode.FAILED, str(failed))
    assert "as the fault says" in answer["error"]["message"]
    assert desk.runs() == [failed]
    assert desk.answer() != str(failed)


def test_a_run_in_progress_is_waited_for(desk):
    desk.fault.write_text("kill 5")
    desk.ask()
    [folder] = desk.runs()
    with held(RunFolder(folder)):
        done = desk.ask("--wait", "1s")
        assert (done.code, json.loads(done.out)["error"]["code"]) == (ExitCode.EXPIRED, "WaitExpired")
        command = [sys.executable, str(RUN), "--once", *WORDS, "--json"]
        asked = subprocess.Popen(command, cwd=desk.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert any("waiting for it" in line for line in asked.stderr)
    out, _ = asked.communicate(timeout=250)
    assert json.loads(out)["result"]["folder"] == str(folder)


def test_an_edited_run_does_not_count(desk):
    first = Path(desk.answer())
    (first / "epochs.csv").write_text("epoch,val_acc1\n1,100\n")
    assert desk.answer() != str(first)


def test_moved_runs_are_found_where_they_are_named(desk):
    first = Path(desk.answer("hydra.run.dir=outputs/first"))
    first.rename(desk.folder / "archive")
    assert desk.answer("--among", ".") == str(desk.folder / "archive")
    assert desk.answer() not in (str(first), str(desk.folder / "archive"))


def test_python(desk, monkeypatch):
    monkeypatch.chdir(desk.folder)
    first, second = (manyheads.run(WORDS, once=True) for _ in range(2))
    assert first.folder == second.folder
    assert len(desk.runs()) == 1
