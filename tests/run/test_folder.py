"""A folder held open: whatever somebody does to it at the same time, nothing outside is read, written or removed."""

import os
import socket
import stat
from pathlib import Path

import pytest

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.folder import Folder, Inode


@pytest.fixture
def outside(tmp_path):
    """Files that only their owner may read, change or remove."""
    (tmp_path / "outside" / "logs").mkdir(parents=True)
    (tmp_path / "outside" / "logs" / "file").write_text("precious")
    return tmp_path / "outside"


@pytest.fixture
def path(tmp_path):
    (tmp_path / "shared" / "run" / "logs").mkdir(parents=True)
    (tmp_path / "shared" / "run" / "logs" / "file").write_text("theirs")
    return tmp_path / "shared" / "run"


def test_what_it_holds(path):
    with Folder(path) as folder:
        assert folder.read("logs/file") == b"theirs"
        assert list(folder.list()) == ["logs"]
        assert [str(name) for name, _ in folder.walk()] == ["logs", "logs/file"]
        assert folder.status("logs/file").st_size == 6
        with folder.open("logs/file", "a", encoding="utf-8") as file:
            file.write(", ours")
        with folder.child("logs") as logs:
            assert logs.read("file") == b"theirs, ours"
            assert logs.path == path / "logs"
        with pytest.raises(ConfigurationError, match="more than 3 bytes"):
            folder.read("logs/file", most=3)
        with pytest.raises(FileNotFoundError, match="logs/none"):
            folder.read("logs/none")


def test_a_relative_path(path, monkeypatch):
    monkeypatch.chdir(path.parent)
    for name in ("run", ".", "../shared/run"):
        with Folder(Path(name)) as folder:
            assert (folder.path / "x").parent == Path(name)


def test_it_closes_what_it_opened(path):
    before = len(os.listdir("/proc/self/fd"))
    with Folder(path) as folder, folder.child("logs") as logs:
        logs.read("file")
        folder.list()
        list(folder.walk())
        for name in ("none", "none/none", "../run"):
            with pytest.raises((OSError, ConfigurationError)):
                folder.read(name)
    with pytest.raises(OSError, match="none"):
        Folder(path / "none")
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("name", ["..", "../run/logs/file", "logs/../../file", "/etc/hostname"])
def test_a_name_stays_inside(path, name):
    with Folder(path) as folder:
        for way in (folder.read, folder.child, folder.remove, folder.status):
            with pytest.raises(ConfigurationError, match="points outside"):
                way(name)


@pytest.mark.parametrize("part", ["shared", "run", "logs", "file"])
def test_no_part_may_be_a_link(path, outside, part):
    """Neither above the folder, nor the folder itself, nor below."""
    place = {"shared": path.parent, "run": path, "logs": path / "logs", "file": path / "logs" / "file"}[part]
    place.rename(place.with_name("before"))
    real = {"shared": outside.parent / "other", "file": outside / "logs" / "file", "logs": outside / "logs"}
    if part == "shared":
        real[part].mkdir()
        outside.rename(real[part] / "run")
    place.symlink_to(real.get(part, outside))
    with pytest.raises(ConfigurationError, match="is a link or not a plain file"), Folder(path) as folder:
        folder.read("logs/file")
    with pytest.raises(ConfigurationError, match="is a link"), Folder(path) as folder, folder.open("logs/file", "w"):
        pass


def test_what_replaces_the_folder_is_not_entered(path, outside):
    with Folder(path) as folder:
        path.rename(path.with_name("before"))
        path.symlink_to(outside)
        assert folder.read("logs/file") == b"theirs"
        with folder.open("logs/file", "w") as file:
            file.write("written")
        folder.remove("logs")
    assert (outside / "logs" / "file").read_text() == "precious"
    assert os.listdir(path.with_name("before")) == []


@pytest.mark.parametrize("kind", ["pipe", "socket", "folder", "hard link"])
def test_only_plain_files_are_opened(path, outside, kind):
    file = path / "x"
    if kind == "pipe":
        os.mkfifo(file)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(file))
    elif kind == "folder":
        file.mkdir()
    else:
        os.link(outside / "logs" / "file", file)
    with Folder(path) as folder:
        if kind == "hard link":  # a second name may be read, not changed
            assert folder.read("x") == b"precious"
        with pytest.raises((ConfigurationError, IsADirectoryError)), folder.open("x", "a"):
            pass
    assert (outside / "logs" / "file").read_text() == "precious"


class TestRemoval:
    def test_a_file_a_link_and_a_folder(self, path, outside):
        (path / "link").symlink_to(outside)
        (path / "logs" / "link").symlink_to(outside)
        with Folder(path) as folder:
            for name in ("logs/file", "link", "logs"):
                folder.remove(name)
            with pytest.raises(FileNotFoundError):
                folder.remove("logs")
        assert os.listdir(path) == []
        assert (outside / "logs" / "file").exists()

    @pytest.mark.parametrize("by", ["link", "folder"])
    def test_only_what_was_examined(self, path, outside, by):
        with Folder(path.parent) as folder:
            seen = Inode.of(folder.status("run"))
            path.rename(path.with_name("before"))
            path.symlink_to(outside) if by == "link" else outside.rename(path)
            with pytest.raises(ConfigurationError, match="was replaced while it was being examined"):
                folder.remove("run", only=seen)
        assert (path / "logs" / "file").read_text() == "precious"
        assert sorted(os.listdir(path.parent)) == ["before", "run"]

    def test_what_is_replaced_at_the_last_moment(self, path, outside, monkeypatch):
        rename = os.rename

        def replaced(source, target, **at):
            if str(source) == "run":
                monkeypatch.setattr(os, "rename", rename)
                rename(path, path.with_name("before"))
                rename(outside, path)
            rename(source, target, **at)

        with Folder(path.parent) as folder:
            seen = Inode.of(folder.status("run"))
            monkeypatch.setattr(os, "rename", replaced)
            with pytest.raises(ConfigurationError, match="was replaced"):
                folder.remove("run", only=seen)
        assert (path / "logs" / "file").read_text() == "precious"


class TestLinksForOtherPrograms:
    @pytest.mark.parametrize("target", ["../../outside", "/etc/hostname", "nothing/../../../x"])
    def test_outside(self, path, outside, target):
        (path / "logs" / "link").symlink_to(target)
        with Folder(path) as folder, pytest.raises(ConfigurationError, match="points outside"):
            folder.refuse_links()

    def test_inside(self, path):
        (path / "link").symlink_to("logs/file")
        with Folder(path) as folder:
            folder.refuse_links()

    def test_a_pipe(self, path):
        os.mkfifo(path / "logs" / "pipe")
        assert stat.S_ISFIFO((path / "logs" / "pipe").stat().st_mode)
        with Folder(path) as folder, pytest.raises(ConfigurationError, match="not a plain file"):
            folder.refuse_links()
