"""A folder where the user works, and what the attacker can do: own a key, be another user, send folders."""

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from manyheads.runner.__main__ import main
from tests.conftest import FAST, Done, execute

STRANGER = 65534  # a user without rights
SMALL = (*(o for o in FAST if "width" not in o), "data=synthetic", "data.image_size=32")
MODULE = """
import torch
class Net(torch.nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.layer = torch.nn.Linear(3, num_classes)
    def forward(self, x):
        return self.layer(x.mean((2, 3)))
"""


@dataclass(frozen=True)
class Scene:
    """``folder``: others may enter it, not write. Its ``home`` is the user's; ``mark`` is what only evil code makes."""

    folder: Path
    patch: pytest.MonkeyPatch
    output: Callable[[], Any]  # what was printed since the last call

    @property
    def mark(self) -> Path:
        """The file by which the attacker's code says that it ran; every user may write it."""
        return self.folder / "open" / "mark"

    @property
    def evil(self) -> str:
        """A module with the class of the user's, which leaves a mark."""
        return f"open({str(self.mark)!r}, 'a').write(__file__)\n{self.harmless}"

    @property
    def harmless(self) -> str:
        """The user's own module."""
        return MODULE

    def new(self, name: str, *, mode: int = 0o755, **files: str) -> Path:
        """A folder with Python files, by their names."""
        path = self.folder / name
        path.mkdir()
        path.chmod(mode)
        for file, content in files.items():
            (path / f"{file}.py").write_text(content)
        return path

    def user(self, *words: str, cwd: Path | None = None) -> Done:
        """A command of the user's, in a process of its own."""
        return execute(sys.executable, "-m", "manyheads.runner", *words, cwd=cwd or self.folder)

    def here(self, *words: str) -> Done:
        """A command of the user's in this process: one that starts nothing."""
        self.output()
        code = main([*words])
        return Done(code, *self.output())

    def refused(self, *words: str, naming: str) -> None:
        """The user's command is refused with this part of a message."""
        done = self.here(*words)
        assert (done.code, naming in done.err) == (2, True), done.out + done.err

    @contextmanager
    def attackers_key(self):
        """A context in which commands are those of somebody with another key."""
        with self.patch.context() as patch:
            patch.setenv("XDG_STATE_HOME", str(self.folder / "state_of_attacker"))
            yield

    def stranger(self, script: str, *words: str) -> str:
        """What a shell script of another user of the machine prints; it may fail."""
        user = ("setpriv", f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups")
        environment = {**os.environ, "PATH": os.defpath}  # not this user's, which others may not be able to enter
        command = [*user, "sh", "-c", script, "sh", *words]
        done = subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True, timeout=60)
        return done.stdout + done.stderr

    def assert_nothing_ran(self) -> None:
        assert not self.mark.exists(), self.mark.read_text()


@contextmanager
def open_umask():
    """A context in which groups may write to what is created."""
    before = os.umask(0o002)
    try:
        yield
    finally:
        os.umask(before)
