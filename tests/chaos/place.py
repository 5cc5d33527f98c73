"""Where the commands of one case run: their disk, temporary folder and shared memory, and all their processes."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from manyheads.runner.config.lookup import CONF
from tests.callbacks.tracking import TRACKED

if TYPE_CHECKING:
    from tests.launchers.nodes.cluster import Cluster
    from tests.launchers.slurm.cluster import Slurm

PROJECT = CONF.parent
MARK = "MANYHEADS_CHAOS"  # a variable by which processes are found, whatever became of their parents
IS_ROOT = os.geteuid() == 0
# With these, root may write in any folder.
AS_OTHERS = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")


class Place:
    """``disk``: where runs are, small if we are root; ``tracker``: what their tracker was told."""

    tracked = TRACKED

    def __init__(self, folder: Path):
        self.folder = folder
        self.disk, self.tracker = folder / "disk", folder / "tracker"
        self.temporary, self.shm = folder / "tmp", folder / "shm"
        self.overrides: tuple[str, ...] = ()
        self.environment: dict[str, str] = {}
        self.cluster: Cluster | None = None
        self.slurm: Slurm | None = None
        self.ray: Any = None
        self.is_small = False

    @contextmanager
    def prepared(self) -> Iterator["Place"]:
        for path in (self.disk, self.tracker, self.temporary, self.shm):
            path.mkdir(parents=True)
        self.is_small = IS_ROOT and not self._mount("tmpfs", "-o", "size=48m", str(self.disk))
        if IS_ROOT:
            self._mount("tmpfs", str(self.shm))
        try:
            yield self
        finally:
            self.end()
            for path in (self.disk, self.shm) if IS_ROOT else ():
                subprocess.run(["umount", "--lazy", str(path)], capture_output=True)

    def _mount(self, *arguments: str) -> int:
        return subprocess.run(["mount", "-t", "tmpfs", *arguments], capture_output=True).returncode

    def start(self, words: list[str], output: Path) -> subprocess.Popen:
        """Start a command of this project, which has only these places to leave something in."""
        command = [sys.executable, *words]
        if IS_ROOT and shutil.which("setpriv"):
            command = [*AS_OTHERS, *command]
        if self.cluster is not None:
            command = self.cluster.on(1, *command)
        elif IS_ROOT:
            script = 'mount --bind "$0" /dev/shm && exec "$@"'
            command = ["unshare", "--mount", "sh", "-c", script, str(self.shm), *command]
        own = {MARK: str(self.folder), "TMPDIR": str(self.temporary), "PYTHONPATH": f"{PROJECT}/.names:{PROJECT}"}
        with open(output, "ab") as file:
            return subprocess.Popen(
                command,
                cwd=PROJECT,
                env={**os.environ, **self.environment, **own},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def processes(self) -> list[psutil.Process]:
        """All that belong to this place's commands, in the order in which they were started."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                if process.status() == psutil.STATUS_ZOMBIE or not self._is_ours(process):
                    continue
                found.append(process)
        return sorted(found, key=lambda each: (each.create_time(), each.pid))

    def _is_ours(self, process: psutil.Process) -> bool:
        words = process.cmdline()
        if words and Path(words[0]).name in ("unshare", "sh", "slurmd", "slurmctld", "slurmstepd", "munged"):
            return False
        if any("ray/core" in word or word.startswith("ray::") for word in words):
            return False
        return process.environ().get(MARK) == str(self.folder) or any(str(self.disk) in word for word in words)

    def gone(self, seconds: float) -> list[psutil.Process]:
        """Wait until no process is left; returns those that still are after so many seconds."""
        deadline = time.monotonic() + seconds
        while (left := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.2)
        return left

    def end(self) -> None:
        for process in self.processes():
            with suppress(psutil.Error):
                process.send_signal(signal.SIGKILL)

    def leftovers(self) -> list[str]:
        """What is in the temporary folder and in shared memory."""
        return sorted(
            str(path.relative_to(self.folder)) for top in (self.temporary, self.shm) for path in top.iterdir()
        )
