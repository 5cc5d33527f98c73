"""Files written whole, second names, locks, new folders."""

import errno
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run import files
from manyheads.runner.run.files import (
    also_named,
    disk_full,
    exclusive,
    fresh_folder,
    in_turn,
    is_locked,
    remove_leftovers,
    whole_file,
    write_whole,
)


def names(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir())


@pytest.mark.parametrize("before", [None, "old"])
def test_a_write_that_fails_changes_nothing(tmp_path, before):
    path = tmp_path / "file"
    if before is not None:
        path.write_text(before)

    def write_half() -> None:
        with whole_file(path) as file:
            file.write(b"half of the n")
            raise RuntimeError("out of luck")

    with pytest.raises(RuntimeError, match="out of luck"):
        write_half()
    assert names(tmp_path) == ([] if before is None else ["file"])
    assert before is None or path.read_text() == before


def test_the_old_content_stays_until_the_new_is_complete(tmp_path):
    path = tmp_path / "file"
    write_whole(path, "old")
    with whole_file(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert names(tmp_path) == ["file"]


def test_a_writer_that_is_killed_leaves_the_old_content(tmp_path):
    path = tmp_path / "file"
    write_whole(path, "old")
    code = (
        "import os, sys; from pathlib import Path; from manyheads.runner.run.files import whole_file\n"
        "with whole_file(Path(sys.argv[1])) as file:\n"
        "    file.write(b'new'); file.flush(); os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(path)]).returncode == -signal.SIGKILL
    assert path.read_text() == "old"


@pytest.mark.parametrize("content", ["text ä", b"\x00bytes"])
def test_text_and_bytes(tmp_path, content):
    write_whole(tmp_path / "file", content)
    assert (tmp_path / "file").read_bytes() == (content.encode() if isinstance(content, str) else content)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EIO, errno.ESTALE], ids=os.strerror)
def test_a_disk_that_fails_is_named_with_the_file_whatever_the_writer_makes_of_it(tmp_path, number):
    def write_as_torch_does() -> None:
        with whole_file(tmp_path / "last.pt"):
            try:
                raise OSError(number, os.strerror(number))
            finally:
                raise RuntimeError("unexpected pos 81536 vs 81488")

    with pytest.raises(OSError, match=rf"{os.strerror(number)}: '.*/last\.pt'") as caught:
        write_as_torch_does()
    assert bool(disk_full(caught.value)) == (number == errno.ENOSPC)
    assert disk_full(OSError(errno.EDQUOT, "")) is not None
    assert disk_full(PermissionError(errno.EACCES, "")) is None
    assert names(tmp_path) == []


def test_an_error_that_is_its_own_cause_is_no_endless_search():
    error = PermissionError(errno.EACCES, "")
    error.__cause__ = RuntimeError()
    error.__cause__.__context__ = error
    assert disk_full(error) is None


def test_a_second_name_takes_the_place_of_what_had_it(tmp_path):
    path, name = tmp_path / "last.pt", tmp_path / "best.pt"
    write_whole(path, "first")
    also_named(path, name)
    write_whole(path, "second")
    assert name.read_text() == "first"
    also_named(path, name)
    assert name.read_text() == "second"
    assert name.samefile(path)
    assert names(tmp_path) == ["best.pt", "last.pt"]


def test_what_killed_writers_left_is_removed(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    for name in (".a.12.aside", "checkpoints/.last.pt.3.aside", "kept", ".kept"):
        (tmp_path / name).touch()
    remove_leftovers(tmp_path)
    assert names(tmp_path) == [".kept", "checkpoints", "kept"]
    assert names(tmp_path / "checkpoints") == []


class TestLock:
    """One process at a time; here two open files stand for two processes."""

    def test_a_second_one_is_refused_at_once_and_nothing_is_changed(self, tmp_path):
        path = tmp_path / "run.yaml"
        path.write_text("seed: 1\n")
        assert not is_locked(path)
        with exclusive(path, of="the run"):
            assert is_locked(path)
            with pytest.raises(ConfigurationError, match="^the run is being run by another process"):  # noqa: SIM117
                with exclusive(path, of="the run"):
                    pytest.fail("two at a time")
        assert not is_locked(path)
        assert path.read_text() == "seed: 1\n"
        assert names(tmp_path) == ["run.yaml"]

    def test_asking_takes_no_writing(self, tmp_path):
        path = tmp_path / "run.yaml"
        path.touch()
        path.chmod(0o444)
        assert not is_locked(path)

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything: run the tests as another user")
    def test_what_is_somebody_else_s_is_refused(self, tmp_path):
        path = tmp_path / "run.yaml"
        path.touch()
        path.chmod(0o444)
        with (
            pytest.raises(ConfigurationError, match="you have no permission to write its run.yaml"),
            exclusive(path, of="the run"),
        ):
            pytest.fail("it was locked")

    def test_what_lies_on_a_disk_that_can_only_be_read_is_refused(self, tmp_path, monkeypatch):
        def read_only(path: str, flags: int) -> int:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)

        monkeypatch.setattr(files, "_lock_file", read_only)
        refused = pytest.raises(ConfigurationError, match=r"^the run cannot be run: run.yaml: Read-only file system\.$")
        with refused, exclusive(tmp_path / "run.yaml", of="the run"):
            pytest.fail("it was locked")

    def test_a_fork_does_not_keep_it(self, tmp_path):
        """A child process has a copy of every open file until it executes its program."""
        path, (read, write) = tmp_path / "run.yaml", os.pipe()
        path.touch()
        with exclusive(path, of="it"):
            if (child := os.fork()) == 0:
                os.close(write)
                os.read(read, 1)
                os._exit(0)
        try:
            assert not is_locked(path)
        finally:
            os.close(write)
            os.close(read)
            os.waitpid(child, 0)

    def test_a_fork_does_not_release_it(self, tmp_path):
        path = tmp_path / "run.yaml"
        path.touch()
        lock = exclusive(path, of="it")
        with lock:
            if (child := os.fork()) == 0:
                lock.__exit__(None, None, None)
                os._exit(0)
            os.waitpid(child, 0)
            assert is_locked(path)

    def test_in_turn(self, tmp_path):
        path, done = tmp_path / "lock", []

        def second() -> None:
            with in_turn(path):
                done.append("second")

        with in_turn(path):
            waiting = threading.Thread(target=second)
            waiting.start()
            waiting.join(timeout=0.2)
            done.append("first")
        waiting.join(timeout=10)
        assert done == ["first", "second"]


def test_fresh_folders(tmp_path):
    made = [fresh_folder(tmp_path / "a" / "run") for _ in range(3)]
    assert [path.name for path in made] == ["run", "run_2", "run_3"]
    assert all(path.is_dir() for path in made)
