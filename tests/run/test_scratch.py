"""Where temporary folders are created, whatever TMPDIR is."""

import os
import socket
import tempfile

import pytest

from manyheads.runner.errors import warn
from manyheads.runner.run import scratch


@pytest.mark.parametrize("characters", [1, 30, 60, 200])
def test_a_socket_has_room_below_any_temporary_folder(tmp_path_factory, monkeypatch, characters):
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        place = os.path.join(folder, "x" * characters)
        os.mkdir(place)
        monkeypatch.setattr(tempfile, "tempdir", place)
        with scratch.folder(scratch.for_sockets()) as own, socket.socket(socket.AF_UNIX) as listening:
            assert own.stat().st_mode & 0o777 == 0o700
            assert own.is_relative_to(place) == (characters <= 30)
            listening.bind(str(own / "listener-12345678"))


def test_without_shared_memory_a_folder_has_room_for_sockets_too(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / ("x" * 90)))
    monkeypatch.setattr(os, "access", lambda place, _: place != "/dev/shm")
    assert scratch.base() == "/tmp"


def test_not_below_a_folder_in_which_others_can_replace_it(tmp_path, monkeypatch, capsys):
    """Such as the scratch folder of a project: its group, or everybody, may rename what is in it."""
    warn.cache_clear()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for mode, is_used in ((0o777, False), (0o1777, True), (0o755, True)):
        tmp_path.chmod(mode)
        assert (scratch.temporary() == str(tmp_path)) == is_used
        assert is_used or scratch.for_sockets() == "/tmp"
    assert f"others can replace what is in {tmp_path}, so" in capsys.readouterr().err
