"""The file of a budget: what it may say, which one counts, and that no mistake in it is ignored."""

import os
from datetime import datetime
from pathlib import Path

import pytest

from manyheads.launchers.companions.budget.limits import NAMED, SpendingLimits, budget_file
from manyheads.runner.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("device_seconds: 90.5", {"device_seconds": 90.5}),
        ("device_seconds: 36h", {"device_seconds": 36 * 3600}),
        ("runs: 0\ndisk: 1000", {"runs": 0, "disk": 1000}),
        ("disk: 20GB", {"disk": 20e9}),
        ("disk: 1.5 TiB", {"disk": 1.5 * 2**40}),
        ("until: 2026-12-31T18:00+00:00", {"until": 1798740000}),
        ("until: 2026-12-31 18:00", {"until": datetime(2026, 12, 31, 18).timestamp()}),
        ("until: 2026-12-31", {"until": datetime(2027, 1, 1).timestamp()}),
    ],
)
def test_what_it_may_say(text, limits, tmp_path):
    path = tmp_path / "budget.yaml"
    path.write_text(text)
    assert SpendingLimits.read(path) == SpendingLimits(**limits)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "names no limit. Allowed: device_seconds, runs, disk, until"),
        ("- runs", "names no limit"),
        ("runs: [", "cannot be read: "),
        ("device_second: 5", "has the unknown key device_second. Allowed: device_seconds"),
        ("device_seconds: -1", "device_seconds: -1 is not allowed. Allowed: a number of at least 0"),
        ("device_seconds: .nan", "device_seconds: nan is not allowed"),
        ("device_seconds: .inf", "device_seconds: inf is not allowed"),
        ("device_seconds: '-5m'", "is not allowed"),
        ("runs: 2.5", "runs: 2.5 is not allowed. Allowed: an integer"),
        ("runs: true", "is not allowed"),
        ("runs: null", "is not allowed"),
        ("disk: -20GB", "is not allowed. Allowed: bytes, or 500MB"),
        ("disk: 20 bananas", "is not allowed"),
        ("until: tomorrow", "until: tomorrow is not allowed. Allowed: a date or a time such as"),
        ("until: 20261231", "is not allowed"),
    ],
)
def test_mistakes_are_refused(text, why, tmp_path):
    path = tmp_path / "budget.yaml"
    path.write_text(text)
    with pytest.raises(ConfigurationError) as error:
        SpendingLimits.read(path)
    assert "budget.yaml, the budget, " in str(error.value)
    assert why in str(error.value)


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    for name, why in (("missing.yaml", "No such file"), ("folder", "not a plain file")):
        (tmp_path / "folder").mkdir(exist_ok=True)
        with pytest.raises(ConfigurationError, match=why):
            SpendingLimits.read(tmp_path / name)
    (tmp_path / "bytes.yaml").write_bytes(b"runs: 5 # \xff")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        SpendingLimits.read(tmp_path / "bytes.yaml")


def test_a_file_that_was_named_is_refused_by_that_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(NAMED, str(tmp_path / "missing.yaml"))
    with pytest.raises(ConfigurationError) as error:
        SpendingLimits.read(budget_file(tmp_path))
    assert (
        str(error.value) == f"{NAMED}={tmp_path}/missing.yaml, the budget, cannot be read: No such file or directory."
    )
    (tmp_path / "missing.yaml").mkdir()
    with pytest.raises(ConfigurationError, match=r"[^.]\.$"):
        SpendingLimits.read(budget_file(tmp_path))


class TestWhichOneCounts:
    @pytest.fixture(autouse=True)
    def _here(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        monkeypatch.delenv(NAMED, raising=False)

    def test_none(self, tmp_path):
        assert budget_file(tmp_path / "outputs" / "run") is None

    def test_that_of_the_outputs_folder_for_runs_there_and_elsewhere(self, tmp_path):
        path = tmp_path / "outputs" / "budget.yaml"
        path.parent.mkdir()
        path.write_text("runs: 1")
        assert budget_file(tmp_path / "outputs" / "day" / "run") == budget_file(Path("/elsewhere/run")) == path

    def test_that_above_the_run_from_another_directory(self, tmp_path, monkeypatch):
        path = tmp_path / "there" / "outputs" / "budget.yaml"
        path.parent.mkdir(parents=True)
        path.write_text("runs: 1")
        assert budget_file(path.parent / "day" / "run") == path

    def test_a_name_counts_first_and_must_be_absolute(self, tmp_path, monkeypatch):
        monkeypatch.setenv(NAMED, "/team/budget.yaml")
        assert budget_file(tmp_path) == Path("/team/budget.yaml")
        monkeypatch.setenv(NAMED, "budget.yaml")
        with pytest.raises(ConfigurationError, match="Allowed: an absolute path"):
            budget_file(tmp_path)

    def test_a_link_that_leads_nowhere_is_not_ignored(self, tmp_path):
        (tmp_path / "outputs").mkdir()
        (tmp_path / "outputs" / "budget.yaml").symlink_to(tmp_path / "missing")
        with pytest.raises(ConfigurationError):
            SpendingLimits.read(budget_file(tmp_path))

    def test_that_of_another_user_counts_only_if_it_is_named(self, tmp_path, monkeypatch):
        path = tmp_path / "outputs" / "budget.yaml"
        path.parent.mkdir()
        path.write_text("runs: 1")
        mine = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
        if mine == 0:
            os.chown(path, 4711, -1)
        with pytest.raises(ConfigurationError, match=r"belongs to user \d+, not to you. To follow it, name it"):
            budget_file(tmp_path)
        monkeypatch.setenv(NAMED, str(path))
        assert budget_file(tmp_path) == path
