"""Where the user's settings, secrets and caches are."""

import pytest

from manyheads.runner.machine.user_folders import user_folder

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
