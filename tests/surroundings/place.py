"""Where one cell's command runs: its folders, streams, user and host, and the processes that it may leave."""

import os
import resource
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from tests.conftest import Done
from tests.launchers.conftest import mounted

NAMELESS = 54321  # a user id without a name; it may read what root may, such as Python in root's home
AS_NAMELESS = (
    *("setpriv", f"--reuid={NAMELESS}", f"--regid={NAMELESS}", "--clear-groups"),
    *("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"),
    "--securebits=+no_setuid_fixup",  # access() counts those, too
)
ON_NAMELESS_HOST = ("unshare", "--uts", "sh", "-c", 'hostname no-such-host.invalid && exec "$@"', "sh")
ODD = "a ünï+,[]%#'(1)"
STREAMS = {"closed": "0>&- 1>&- 2>&-", "stdout closed": "1>&-", "stderr closed": "2>&-", "full": "1>/dev/full"}
MARK = "TESTS_SURROUNDINGS"  # a variable by which processes are recognized, whatever became of their parents


class Place:
    """The surroundings of one cell below ``folder``; ``directory`` is the working directory."""

    def __init__(self, folder: Path, cell: Mapping[str, str]):
        self.folder, self.cell = folder, cell
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
        self.environment[MARK] = str(folder)
        self.is_nameless = cell["home"] in ("none", "unknown uid") or cell["names"] == "user"
        self.directory = folder

    @contextmanager
    def prepared(self) -> Iterator["Place"]:
        with ExitStack() as stack:
            self._home(stack)
            self._temporary(stack)
            self._directory()
            for path in (self.folder, *self.folder.rglob("*")) if self.is_nameless else ():
                with suppress(OSError):  # what is read-only
                    os.chown(path, NAMELESS, NAMELESS)
            try:
                yield self
            finally:
                for process in self.processes():
                    process.kill()

    def _home(self, stack: ExitStack) -> None:
        home = self.folder / "home"
        home.mkdir()
        match self.cell["home"]:
            case "none":
                del self.environment["HOME"]
                return
            case "unknown uid":
                home = Path("/")  # as container engines set it
            case "read-only":
                read_only(home, stack)
            case "full":
                stack.enter_context(mounted(home, "4k"))
                (home / "all").write_bytes(bytes(4096))
                refuses_files(home)
        self.environment["HOME"] = str(home)

    def _temporary(self, stack: ExitStack) -> None:
        name = {"long": "t" * 120, "odd": ODD}.get(self.cell["TMPDIR"], "temporary")
        temporary = self.folder / name
        if self.cell["TMPDIR"] != "missing":
            temporary.mkdir()
        if self.cell["TMPDIR"] == "read-only":
            read_only(temporary, stack)
        self.environment["TMPDIR"] = str(temporary)

    def _directory(self) -> None:
        self.directory = self.folder / (ODD if self.cell["directory"] == "odd" else "directory") / "work"
        self.directory.mkdir(parents=True)
        if self.cell["directory"] == "linked":
            link = self.folder / "link"
            link.symlink_to(self.directory)
            (self.folder / "scratch").mkdir()
            (self.directory / "outputs").symlink_to(self.folder / "scratch")
            self.directory = link

    def run(self, *command: str, seconds: float) -> tuple[Done, float]:
        """How the command ended, and its processor seconds; one that takes longer than ``seconds`` fails the test."""
        under = ON_NAMELESS_HOST if self.cell["names"] == "host" else ()
        under = (*under, *(AS_NAMELESS if self.is_nameless else ()))
        leave = 'rmdir "$PWD" && ' if self.cell["directory"] == "deleted" else ""
        script = f'{leave}exec "$@" {STREAMS.get(self.cell["streams"], "")}'
        out, err = self.folder / "out", self.folder / "err"
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        with open(out, "wb") as output, open(err, "wb") as errors:
            process = subprocess.Popen(
                [*under, "bash", "-c", script, "bash", *command],
                cwd=self.directory,
                env={**self.environment, "PWD": str(self.directory)},
                stdout=subprocess.PIPE if self.cell["streams"] == "pipe that ends" else output,
                stderr=errors,
                start_new_session=True,
            )
            if process.stdout is not None:
                process.stdout.readline()
                process.stdout.close()
            code = process.wait(seconds)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        busy = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return Done(code, out.read_text(errors="replace"), err.read_text(errors="replace")), busy

    def processes(self) -> list[psutil.Process]:
        """What the command has left running."""
        left = []
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                if process.environ().get(MARK) == str(self.folder) and process.status() != psutil.STATUS_ZOMBIE:
                    left.append(process)
        return left

    def left(self, seconds: float = 10) -> list[str]:
        """The command lines of what is still running after a while."""
        until = time.monotonic() + seconds
        while self.processes() and time.monotonic() < until:
            time.sleep(0.1)
        return [" ".join(process.cmdline()) for process in self.processes()]


def read_only(folder: Path, stack: ExitStack) -> None:
    """Mount an empty file system over a folder that not even root can write to."""
    stack.enter_context(mounted(folder, "1m"))
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
    refuses_files(folder)


def refuses_files(folder: Path) -> None:
    """Fail the test if a file can be written after all."""
    with pytest.raises(OSError, match="Read-only|No space"):
        (folder / "file").write_bytes(bytes(4096))
