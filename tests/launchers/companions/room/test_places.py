"""The folder of claims belongs to its user alone: what others made, or could write to, is refused in a sentence."""

import os
import stat

import pytest

from manyheads.launchers.companions.room import registry
from manyheads.launchers.companions.room.registry import is_local, leases_folder
from manyheads.runner.errors import ConfigurationError

NOT_MINE = os.geteuid() + 4321


def test_it_is_created_for_the_user_alone(leases):
    before = os.umask(0)
    try:
        with leases_folder(create=True) as folder:
            assert folder.path == leases
    finally:
        os.umask(before)
    assert stat.S_IMODE(leases.stat().st_mode) == 0o700


def test_none_is_created_to_look(leases):
    assert leases_folder(create=False) is None
    assert not leases.exists()


def test_by_default_it_is_below_tmp(monkeypatch, tmp_path):
    monkeypatch.delenv("MANYHEADS_LEASES", raising=False)
    monkeypatch.setattr(registry, "SHARED", tmp_path)
    with leases_folder(create=True) as folder:
        assert folder.path == tmp_path / f"manyheads-{os.geteuid()}"


def refused(path: object) -> str:
    with pytest.raises(ConfigurationError) as error:
        leases_folder(create=True)
    assert str(path) in str(error.value)
    assert "MANYHEADS_LEASES" in str(error.value)
    return str(error.value)


def test_one_that_others_may_enter_is_refused(leases):
    leases.mkdir()
    leases.chmod(0o755)
    assert "has the mode 755, not 700" in refused(leases)


def test_a_link_is_refused(leases, tmp_path):
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    leases.symlink_to(tmp_path / "elsewhere")
    assert "is a link" in refused(leases)


def test_a_file_is_refused(leases):
    leases.touch(mode=0o700)
    assert "is not a folder" in refused(leases)


def test_another_users_folder_is_refused(leases, monkeypatch):
    leases.mkdir(mode=0o700)
    monkeypatch.setattr(os, "geteuid", lambda: NOT_MINE)
    assert f"belongs to user {os.getuid()}, not to you" in refused(leases)


def test_a_relative_path_is_refused(monkeypatch):
    monkeypatch.setenv("MANYHEADS_LEASES", "leases")
    assert "an absolute path" in refused("leases")


def test_a_container_sees_its_own_runs_only_unless_a_folder_is_named(leases, monkeypatch):
    monkeypatch.setattr(registry, "CONTAINERS", (leases.parent,))
    assert not is_local()
    monkeypatch.delenv("MANYHEADS_LEASES")
    assert is_local()
