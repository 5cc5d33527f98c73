"""A shared disk that can be hurt: a file system of its own in a file, which all nodes see."""

import fcntl
import os
import struct
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from tests.launchers.nodes.cluster import Cluster
from tests.needs import cannot

_SHUT_DOWN = 0x8004587D  # ext4's ioctl EXT4_IOC_SHUTDOWN, with a word that says how
_NO_LOG_FLUSH = 2


class Disk:
    """An ext4 in ``image``, mounted at ``folder``; to be mounted before nodes' processes start."""

    def __init__(self, image: Path, folder: Path):
        self.image, self.folder = image, folder

    def mount(self) -> None:
        """Also after it failed, and all that used it is gone: what was synced is there."""
        _run("mount", "-o", "loop", str(self.image), str(self.folder))

    def unmount(self) -> None:
        _run("umount", str(self.folder))

    def freeze(self) -> None:
        """Writes hang, as over NFS whose server is silent."""
        _run("fsfreeze", "--freeze", str(self.folder))

    def thaw(self) -> None:
        _run("fsfreeze", "--unfreeze", str(self.folder))

    def turn_read_only(self) -> None:
        """Writes fail from now on, to open files too, as after an error of the device."""
        _run("mount", "-o", "remount,abort", str(self.folder))

    def fail(self) -> None:
        """Whatever is not in memory cannot be read or written any more."""
        handle = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.ioctl(handle, _SHUT_DOWN, struct.pack("I", _NO_LOG_FLUSH))
        finally:
            os.close(handle)

    def fill(self) -> None:
        """Until nothing fits."""
        with open(self.folder / "filling", "wb", buffering=0) as file:
            for size in (1 << 16, 1 << 10):
                try:
                    while True:
                        file.write(bytes(size))
                except OSError:
                    continue


@contextmanager
def hidden(cluster: Cluster, folder: Path, *nodes: int) -> Iterator[None]:
    """These nodes, or all, see an empty folder in the place of ``folder``, as when a network disk has gone."""
    with ExitStack() as stack:
        spaces: dict[int, int] = {}  # descriptors of mount namespaces, which outlive the processes that they are of
        for process in cluster.processes(*nodes):
            with suppress(FileNotFoundError):  # it has ended since
                space = os.open(f"/proc/{process.pid}/ns/mnt", os.O_RDONLY)
                stack.callback(os.close, space)
                spaces.setdefault(os.fstat(space).st_ino, space)
        for space in spaces.values():
            _within(space, "mount", "-t", "tmpfs", "-o", "ro,size=64k", "tmpfs", str(folder))
        try:
            yield
        finally:
            for space in spaces.values():
                _within(space, "umount", str(folder))


def _within(space: int, *command: str) -> None:
    _run("nsenter", f"--mount=/proc/{os.getpid()}/fd/{space}", *command)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


@contextmanager
def attached(folder: Path, *, megabytes: int = 32) -> Iterator[Disk]:
    """A new disk below ``folder``. The test is skipped where none can be made."""
    disk = Disk(folder / "image", folder / "disk")
    disk.folder.mkdir()
    with open(disk.image, "wb") as file:
        file.truncate(megabytes << 20)
    try:
        _run("mkfs.ext4", "-q", "-F", str(disk.image))
        disk.mount()
    except (OSError, subprocess.CalledProcessError):
        pytest.skip(cannot("attach a disk"))
    try:
        yield disk
    finally:
        subprocess.run(["fsfreeze", "--unfreeze", str(disk.folder)], capture_output=True)
        subprocess.run(["umount", "--lazy", str(disk.folder)], capture_output=True)
