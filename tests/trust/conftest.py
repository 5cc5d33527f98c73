"""The user's working directory, and commands in it over what somebody sent."""

import re
import sys

import pytest

from manyheads.runner.__main__ import main
from tests import in_process
from tests.conftest import FAST, Done, execute
from tests.trust.foreign import OWN


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The user's working directory, with a package of his own; whoever imports that leaves a mark."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    (tmp_path / "my_package.py").write_text(OWN)
    (tmp_path / "hydra_would_import.py").write_text(OWN)
    return tmp_path


@pytest.fixture
def config():
    """A run config, to be changed."""
    return in_process.config(*FAST)


@pytest.fixture
def resume(here):
    return lambda *arguments: execute(sys.executable, "-m", "manyheads.runner", "resume", *arguments, cwd=here)


@pytest.fixture
def command_here(here, monkeypatch, capfd):
    """``python -m runner`` without a process of its own: for what is refused before anything starts."""

    def run(*arguments: str) -> Done:
        monkeypatch.chdir(here)
        monkeypatch.setattr(sys, "argv", ["runner", *arguments])
        capfd.readouterr()
        return Done(main(), *capfd.readouterr())

    return run


@pytest.fixture
def resume_here(command_here):
    return lambda *arguments: command_here("resume", *arguments)


@pytest.fixture
def trust_here(command_here):
    """``trust`` without a terminal: the digest that is shown is named in a second command."""

    def run(folder: str) -> Done:
        shown = command_here("trust", folder)
        assert shown.code == 2, shown.out
        found = re.search(r"^digest (\w+)$", shown.out, re.MULTILINE)
        assert found, shown.err
        return command_here("trust", folder, "--yes", found[1])

    return run
