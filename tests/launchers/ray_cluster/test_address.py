"""launcher.address=auto: the user's own cluster, never one that another user of the machine claims to be it."""

import os
import tempfile

import pytest

from manyheads.launchers.ray.ray_driver import cluster_address


@pytest.fixture
def file(tmp_path, monkeypatch):
    """Where `ray start` notes the cluster's address."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    (tmp_path / "ray").mkdir()
    path = tmp_path / "ray" / "ray_current_cluster"
    path.write_text("127.0.0.1:6379")
    return path


def test_the_cluster_that_was_started_here(file, monkeypatch):
    assert cluster_address("auto") == "127.0.0.1:6379"
    monkeypatch.delenv("RAY_TMPDIR")
    monkeypatch.setattr(tempfile, "tempdir", str(file.parent.parent))
    assert cluster_address("auto") == "127.0.0.1:6379"


def test_what_is_named_comes_first(file, monkeypatch):
    assert cluster_address("10.0.0.1:1") == "10.0.0.1:1"
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.2:2")
    assert cluster_address("auto") == "10.0.0.2:2"
    assert cluster_address("10.0.0.1:1") == "10.0.0.1:1"
    monkeypatch.setenv("RAY_ADDRESS", "auto")
    assert cluster_address("auto") == "127.0.0.1:6379"


def test_another_users_is_refused(file, monkeypatch):
    if os.getuid() == 0:
        os.chown(file, 12345, 12345)
    else:
        monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(ConnectionError, match="another user may have written"):
        cluster_address("auto")


def test_one_that_others_may_write_is_refused(file):
    file.chmod(0o666)
    with pytest.raises(ConnectionError, match="another user may have written"):
        cluster_address("auto")


@pytest.mark.parametrize("way", ["typed", "variable"])
def test_none_is_started_since_its_folder_would_be_open_to_every_user(file, monkeypatch, way):
    monkeypatch.setenv("RAY_ADDRESS", "local" if way == "variable" else "")
    with pytest.raises(ConnectionError, match="local would start another cluster"):
        cluster_address("auto" if way == "variable" else "local")


@pytest.mark.parametrize("what", ["missing", "link", "empty"])
def test_none(file, what):
    file.rename(file.with_name("other"))
    if what == "link":
        file.symlink_to(file.with_name("other"))
    if what == "empty":
        file.touch()
    with pytest.raises(ConnectionError, match="none was started here"):
        cluster_address("auto")
