"""The control groups of Linux with which the kernel divides CPU time: versions 1 and 2, wherever they are mounted.

Sources: https://docs.kernel.org/admin-guide/cgroup-v1/cgroups.html, https://docs.kernel.org/admin-guide/cgroup-v2.html
and, for the files that name them, proc(5) and cgroups(7).
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

PROCESS = Path("/proc/self")
UNIFIED, FIRST = "cgroup2", "cgroup"  # types of file systems: version 2, and version 1


class Hierarchy(NamedTuple):
    """A hierarchy of control groups. ``mount``: its topmost folder here; ``own``: that of this process's group."""

    version: int
    mount: Path
    own: Path

    @property
    def above(self) -> list[Path]:
        """The groups that contain this process's group, the nearest first; the topmost group counts as its own."""
        return [group for group in self.own.parents if group.is_relative_to(self.mount)] or [self.mount]


def cpu_hierarchies(process: Path = PROCESS) -> Iterator[Hierarchy]:
    """The mounted hierarchies that may have the cpu controller: that of version 1 first. None on other systems.

    ``process``: a process's folder in /proc.
    """
    with suppress(OSError, ValueError):
        groups = [line.split(":", 2) for line in (process / "cgroup").read_text().splitlines()]
        first = next((path for _, names, path in groups if "cpu" in names.split(",")), None)
        second = next((path for number, names, path in groups if (number, names) == ("0", "")), None)
        mounts = [*_mounts(process)]
        for kind, root, mount, options in mounts:
            if kind == FIRST and first is not None and "cpu" in options:
                yield Hierarchy(1, mount, _below(mount, root, first))
        for kind, root, mount, _ in mounts:
            if kind == UNIFIED and second is not None:
                yield Hierarchy(2, mount, _below(mount, root, second))


def _mounts(process: Path) -> Iterator[tuple[str, str, Path, list[str]]]:
    """The mounted hierarchies: type, the group that is mounted, the mount point, and the options of each."""
    for line in (process / "mountinfo").read_text().splitlines():
        mount, _, system = line.partition(" - ")
        (_, _, _, root, point, *_), (kind, _, options) = mount.split(" "), system.split(" ", 2)
        if kind in (FIRST, UNIFIED):
            yield kind, root, Path(point.replace(r"\040", " ")), options.split(",")


def _below(mount: Path, root: str, path: str) -> Path:
    """The folder of the group ``path`` if the group ``root`` is mounted there; the topmost one if it is elsewhere."""
    with suppress(ValueError):
        folder = mount / Path(path).relative_to(root)
        if ".." not in folder.parts:  # the group is outside of this namespace
            return folder
    return mount
