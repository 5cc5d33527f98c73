import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from manyheads.runner.provenance import code_state as module
from manyheads.runner.provenance import git as git_module
from manyheads.runner.provenance.code_state import code_state


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A repository of its own with one commit of run.py."""
    monkeypatch.setattr(module, "ROOT", tmp_path)
    (tmp_path / "run.py").write_text("print(1)\n")
    for command in ("init -q", "add run.py", "-c user.name=a -c user.email=a@b commit -qm first"):
        subprocess.run(["git", *command.split()], cwd=tmp_path, check=True)
    return tmp_path


def git(repository: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=repository, check=True, capture_output=True, text=True).stdout


def test_a_clean_commit_has_no_diff(repository):
    assert code_state() == (git(repository, "rev-parse", "HEAD").strip(), b"")


def test_changes_and_new_code_files_are_in_the_diff(repository):
    (repository / "run.py").write_text("print(2)\n")
    (repository / "new.py").write_text("print('new')\n")
    (repository / "photo.jpg").write_bytes(b"not code")
    before = git(repository, "status", "--porcelain"), (repository / ".git" / "index").read_bytes()
    diff = code_state()[1].decode()
    assert "+print(2)" in diff
    assert "+print('new')" in diff
    assert "photo" not in diff
    assert (git(repository, "status", "--porcelain"), (repository / ".git" / "index").read_bytes()) == before


def test_the_diff_restores_the_code(repository):
    (repository / "run.py").write_text("print(2)\n")
    (repository / "new.py").write_text("print('new')\n")
    diff = code_state()[1]
    git(repository, "stash", "-u", "-q")
    subprocess.run(["git", "apply", "-"], cwd=repository, input=diff, check=True)
    assert (repository / "run.py").read_text() == "print(2)\n"
    assert (repository / "new.py").read_text() == "print('new')\n"


def test_a_change_within_the_same_second_is_in_the_diff(repository):
    """Git reads a file that is as young as the index, so the index must not look younger than it is."""
    git(repository, "config", "core.trustctime", "false")
    code, then = repository / "run.py", (1_700_000_000, 1_700_000_000)
    os.utime(code, then)
    git(repository, "update-index", "--refresh")
    code.write_text("print(2)\n")  # of the same size
    for path in (code, repository / ".git" / "index"):
        os.utime(path, then)
    (repository / "new.py").write_text("print('new')\n")
    assert "+print(2)" in code_state()[1].decode()


def test_staged_changes_are_in_the_diff(repository):
    (repository / "run.py").write_text("print(3)\n")
    git(repository, "add", "run.py")
    assert b"+print(3)" in code_state()[1]


def test_without_a_repository_there_is_no_commit(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert code_state() == (None, b"")


def test_without_git_there_is_no_commit(repository, monkeypatch):
    monkeypatch.setenv("PATH", str(repository))
    assert shutil.which("git") is None
    assert code_state() == (None, b"")


def test_binary_files_survive(repository):
    (repository / "table.bin").write_bytes(b"\0\1")
    git(repository, "add", "table.bin")
    diff = code_state()[1]
    git(repository, "reset", "-q", "--hard")
    subprocess.run(["git", "apply", "-"], cwd=repository, input=diff, check=True)
    assert (repository / "table.bin").read_bytes() == b"\0\1"


KILLED = """
import os, signal, tempfile
from pathlib import Path
from manyheads.runner.provenance import code_state as module
from manyheads.runner.provenance import git as git_module
git, module.ROOT, tempfile.tempdir = module.asked, Path({root!r}), {scratch!r}
module.asked = lambda *args, **env: os.kill(os.getpid(), signal.SIGKILL) if "diff" in args else git(*args, **env)
module.code_state()
"""


def test_a_process_that_is_killed_meanwhile_leaves_nothing_to_the_next(repository, tmp_path_factory, monkeypatch):
    scratch = tmp_path_factory.mktemp("scratch")
    code = KILLED.format(root=str(repository), scratch=str(scratch))
    assert subprocess.run([sys.executable, "-c", code]).returncode == -signal.SIGKILL
    assert [*scratch.rglob("index")]
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    code_state()
    assert not [*scratch.iterdir()]


@pytest.mark.parametrize("is_killed_again", [False, True])
@pytest.mark.parametrize("word", ["--git-path", "ls-files", "add", "diff"])
def test_changes_are_never_taken_for_none_because_git_was_killed(
    repository, tmp_path, monkeypatch, word, is_killed_again
):
    (repository / "new.py").write_text("print('new')\n")
    expected = code_state()
    program, mark = tmp_path / "bin" / "git", tmp_path / "mark"
    program.parent.mkdir()
    once = "" if is_killed_again else f"[ ! -e {mark} ] && touch {mark} &&"
    program.write_text(
        f'#!/bin/sh\nfor each; do [ "$each" = {word} ] && {once} kill -9 $$; done\nexec {shutil.which("git")} "$@"\n'
    )
    program.chmod(0o700)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    assert code_state() == ((None, b"") if is_killed_again else expected)


def test_git_does_not_wait_for_ever_at_a_pipe(repository, monkeypatch):
    os.mkfifo(repository / "pipe")
    git(repository, "config", "core.excludesFile", str(repository / "pipe"))
    monkeypatch.setattr(git_module, "MOST_SECONDS", 0.3)
    assert git_module.asked(repository, "ls-files", "--others", "--exclude-standard") is None
