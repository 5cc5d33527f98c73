"""Where the user's settings, secrets and caches are."""

import os
import stat

import pytest

from manyheads.runner.machine.user_folders import close_parents, create_private, state_folder, user_folder

DEFAULTS = {"cache": ".cache", "config": ".config", "state": ".local/state"}


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for kind in DEFAULTS:
        monkeypatch.delenv(f"XDG_{kind.upper()}_HOME", raising=False)


@pytest.mark.parametrize("kind", DEFAULTS)
def test_the_variable_counts_if_it_is_absolute(tmp_path, monkeypatch, kind):
    default = tmp_path / "home" / DEFAULTS[kind]
    assert user_folder(kind) == default
    for value, expected in ((str(tmp_path / "own"), tmp_path / "own"), ("", default), ("own", default)):
        monkeypatch.setenv(f"XDG_{kind.upper()}_HOME", value)
        assert user_folder(kind) == expected


def test_a_user_without_a_home_has_none(tmp_path, monkeypatch):
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", lambda uid: {}[uid])
    assert user_folder("state") is None
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert user_folder("state") == tmp_path


@pytest.fixture
def _open_umask():
    """Of many clusters: what is created may be written by the group."""
    before = os.umask(0o002)
    yield
    os.umask(before)


@pytest.mark.usefixtures("_open_umask")
def test_what_is_created_is_the_users_alone_whatever_the_umask(tmp_path):
    (tmp_path / "home").mkdir()
    create_private(state_folder())
    for name in (".local", ".local/state", ".local/state/manyheads"):
        assert stat.S_IMODE((tmp_path / "home" / name).stat().st_mode) == 0o700


@pytest.mark.usefixtures("_open_umask")
def test_folders_that_others_may_write_to_are_closed_and_it_is_said(tmp_path, capsys):
    """Created by an earlier version: somebody of the group could put another folder in the place of the user's."""
    from manyheads.runner.errors import warn

    warn.cache_clear()
    (tmp_path / "home/.local/state/manyheads").mkdir(parents=True)
    (tmp_path / "home/.local/state/manyheads").chmod(0o700)
    assert state_folder() == tmp_path / "home/.local/state/manyheads"
    for name in (".local", ".local/state"):
        assert stat.S_IMODE((tmp_path / "home" / name).stat().st_mode) == 0o755
    assert "others could write to" in capsys.readouterr().err
    (tmp_path / "elsewhere/x").mkdir(parents=True)
    (tmp_path / "elsewhere").chmod(0o777)
    close_parents(tmp_path / "elsewhere/x")  # not below the home: a shared disk
    assert stat.S_IMODE((tmp_path / "elsewhere").stat().st_mode) == 0o777
