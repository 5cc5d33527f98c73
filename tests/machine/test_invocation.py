"""Commands that are printed, wherever this process is."""

from manyheads.runner.machine import invocation
from tests.conftest import COMMANDS


def test_a_command_is_named_in_a_working_directory_that_was_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(invocation, "by_script", lambda: False)
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert invocation.command("show", "run") == f"{COMMANDS} show run"


def test_in_the_checkout_a_command_names_the_package(monkeypatch):
    monkeypatch.setattr(invocation, "by_script", lambda: False)
    monkeypatch.chdir(invocation.ROOT)
    assert invocation.command("show", "run").endswith(" -m runner show run")
