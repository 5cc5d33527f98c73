"""python -m runner, as a process."""

import os
import re
import shutil
import subprocess
import sys
import tempfile

import pytest

from manyheads.runner.app import main
from manyheads.runner.commands.resume import resume
from manyheads.runner.machine import invocation
from manyheads.runner.run.run_folder import RunFolder
from tests.conftest import COMMANDS, ROOT, execute, held


@pytest.fixture
def command(tmp_path):
    def run(*arguments, cwd=tmp_path):
        return execute(sys.executable, "-m", "manyheads.runner", *arguments, cwd=cwd)

    return run


def contents(folder):
    return {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}


def test_doctor(command):
    done = command("doctor")
    assert done.code == 0, done.err
    assert re.search(r"parallel +│ ddp, dp,", done.out)
    assert done.err == ""


@pytest.mark.parametrize("arguments", [[], ["docter"], ["resume"]])
def test_a_wrong_command_is_refused(command, arguments):
    done = command(*arguments)
    assert done.code == 2
    assert f"usage: {COMMANDS}" in done.err
    assert "Traceback" not in done.err


def test_a_command_can_be_pasted_where_it_was_printed(tmp_path, monkeypatch):
    """Also outside the checkout, whose modules have names such as data, and by the Python that printed it."""
    for folder in (ROOT, tmp_path):
        monkeypatch.chdir(folder)
        for path in ("/usr/bin:/bin", os.environ["PATH"]):
            monkeypatch.setenv("PATH", path)
            pasted = subprocess.run(invocation.command("show", tmp_path), shell=True, text=True, capture_output=True)
            assert (pasted.returncode, "holds no run" in pasted.stderr) == (2, True), pasted


@pytest.mark.parametrize(
    ("name", "hint"),
    [("trian", " Did you mean train?"), ("sweep", " Use `python run.py -m`."), ("nothing", "")],
)
def test_what_a_wrong_command_may_have_meant(name, hint, capsys):
    assert main([name, "model=mlp"]) == 2
    assert f"error: {name}: there is no such command.{hint} Allowed: train, audit, " in capsys.readouterr().err


def test_resuming_a_complete_run_changes_nothing(command, finished_run):
    before = contents(finished_run)
    done = command("resume", str(finished_run.path))
    assert done.code == 0, done.err
    assert "is already complete: 2 steps" in done.out
    assert contents(finished_run) == before


def test_resuming_somebody_elses_complete_run_runs_nothing_and_so_is_not_refused(
    command, finished_run, tmp_path, monkeypatch
):
    theirs = RunFolder(shutil.copytree(finished_run.path, tmp_path / "theirs"))
    text = re.sub(r"_target_: manyheads\.runner\.model\S+", "_target_: my_package.Net", theirs.config.read_text())
    assert "my_package.Net" in text
    theirs.config.write_text(text)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another"))
    done = command("resume", str(theirs.path))
    assert (done.code, done.err) == (0, "")
    assert "is already complete: 2 steps" in done.out


def test_resuming_removes_what_killed_processes_left_in_temporary_folders(finished_run, tmp_path, monkeypatch):
    of_killed, of_others = tmp_path / "manyheads-01234567-0", tmp_path / "manyheads-notes"
    for path in (of_killed, of_others):
        path.mkdir()
        (path / "lock").touch()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    resume(str(finished_run.path))
    assert [*tmp_path.glob("manyheads-*")] == [of_others]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "holds no run: run.yaml does not exist"),
        ("", "run.yaml cannot be read"),
        ("a: [", "run.yaml cannot be read"),
        ("text", "run.yaml cannot be read"),
    ],
)
def test_a_folder_without_a_readable_run_is_refused(command, tmp_path, content, message):
    if content is not None:
        (tmp_path / "run.yaml").write_text(content)
    done = command("resume", str(tmp_path))
    assert done.code == 2
    assert done.err.startswith("error: ")
    assert message in done.err
    assert "Traceback" not in done.err
    assert done.out == ""


def test_a_run_that_is_running_is_refused(command, finished_run, tmp_path):
    folder = RunFolder(tmp_path / "copy")
    shutil.copytree(finished_run.path, folder.path)
    folder.result.unlink()
    with held(folder) as holder:
        before = contents(folder)
        done = command("resume", str(folder.path))
        assert contents(folder) == before
        holder.stdin.close()
    assert done.code == 2
    assert done.err == "error: copy is being run by another process. Wait for it, or end it.\n"


@pytest.mark.parametrize("words", [["train"], ["train", "seed=-1"], ["list"], ["resume", "outputs/first"]])
def test_a_working_directory_that_was_deleted_is_named(tmp_path, monkeypatch, capsys, words):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert main(words) == 2
    assert capsys.readouterr().err == "error: the working directory was deleted. Change to one that exists.\n"
