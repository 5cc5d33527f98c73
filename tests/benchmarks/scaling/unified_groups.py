"""A tree of files that behaves as control groups of version 2 do, by the kernel's documentation.

Source: https://docs.kernel.org/admin-guide/cgroup-v2.html, "Controlling Controllers", "No Internal Process Constraint"
and "CPU Interface Files". Only what happens through ``Path`` is imitated.
"""

import errno
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from manyheads.runner.machine.control_groups import cpu_hierarchies
from tests import cpu_quota

CONTROL, CONTROLLERS, PROCESSES = "cgroup.subtree_control", "cgroup.controllers", "cgroup.procs"
MOUNT = "41 31 0:38 / {} rw,nosuid - cgroup2 cgroup2 rw"


class UnifiedGroups:
    """Version 2, mounted in a folder.

    ``own``: the group of the process that looks; ``open``: whether processes may enter groups.
    """

    def __init__(self, folder: Path, own: str, monkeypatch: pytest.MonkeyPatch, *, open: bool = True):
        self.open = True
        self.root, process = folder / "cgroup", folder / "self"
        self._mkdir, self._rmdir, self._write_text = Path.mkdir, Path.rmdir, Path.write_text
        self._mkdir(self.root), self._mkdir(process)
        self._write_text(self.root / CONTROLLERS, "cpuset cpu io memory pids\n")
        self._write_text(self.root / CONTROL, "")
        self._write_text(self.root / PROCESSES, "1\n")  # the root alone may have processes and controlled groups
        self._write_text(process / "cgroup", f"0::/{own}\n")
        self._write_text(process / "mountinfo", MOUNT.format(self.root) + "\n")
        monkeypatch.setattr(Path, "mkdir", lambda path, *a, **k: self.mkdir(path, *a, **k))
        monkeypatch.setattr(Path, "rmdir", lambda path: self.rmdir(path))
        monkeypatch.setattr(Path, "write_text", lambda path, text, *a, **k: self.write_text(path, text, *a, **k))
        monkeypatch.setattr(cpu_quota, "cpu_hierarchies", partial(cpu_hierarchies, process))
        self.own = self.root
        for part in Path(own).parts:
            self.own = self.own / part
            self.own.mkdir()
        if self.own != self.root:
            self._write_text(self.own / PROCESSES, "4711\n")
        self.open = open

    def mkdir(self, path: Path, *arguments: Any, **keywords: Any) -> None:
        existed = path.exists()
        self._mkdir(path, *arguments, **keywords)
        if path.is_relative_to(self.root) and not existed:
            self._write_text(path / PROCESSES, "") if self.open else self._mkdir(path / PROCESSES)
            self._write_text(path / CONTROL, "")
            self._grant(path)

    def _grant(self, group: Path) -> None:
        """Give a group what its parent offers."""
        offered = (group.parent / CONTROL).read_text()
        self._write_text(group / CONTROLLERS, offered)
        for name, value in {"cpu.max": "max 100000", "cpu.weight": "100"}.items():
            if "cpu" in offered.split():
                self._write_text(group / name, value)
            else:
                (group / name).unlink(missing_ok=True)

    def rmdir(self, path: Path) -> None:
        shutil.rmtree(path) if path.is_relative_to(self.root) else self._rmdir(path)

    def write_text(self, path: Path, text: str, *arguments: Any, **keywords: Any) -> int:
        if path.name != CONTROL or not path.is_relative_to(self.root):
            return self._write_text(path, text, *arguments, **keywords)
        group, known = path.parent, path.read_text().split()
        sign, name = text[0], text[1:]
        if sign == "+" and name not in (group / CONTROLLERS).read_text().split():
            raise OSError(errno.ENOENT, "the controller is not available here")
        if sign == "+" and group != self.root and (group / PROCESSES).read_text():
            raise OSError(errno.EBUSY, "the group has processes of its own")
        below = [each for each in group.iterdir() if each.is_dir()]
        if sign == "-" and any(name in (each / CONTROL).read_text().split() for each in below):
            raise OSError(errno.EBUSY, "a group below passes the controller on")
        kept = [*known, name] if sign == "+" else [each for each in known if each != name]
        written = self._write_text(path, " ".join(kept))
        for each in below:
            self._grant(each)
        return written
