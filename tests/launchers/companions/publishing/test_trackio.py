"""Trackio itself: a run that is published again has each row once."""

import json
import sqlite3
import subprocess
import sys

import pytest

from tests.in_process import rows

pytestmark = [pytest.mark.tail, pytest.mark.needs("trackio")]


def test_nothing_is_there_twice(finished, tmp_path, monkeypatch):
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    for _ in range(2):
        command = [sys.executable, "-m", "manyheads.runner", "publish", str(finished.path), "--to", "trackio"]
        subprocess.run(command, check=True, timeout=120)
        (finished.path / "trackers" / "trackio.json").unlink()
    (database,) = (tmp_path / "trackio").glob("manyheads*.db")
    with sqlite3.connect(database) as found:
        written = found.execute("select step, metrics from metrics order by step").fetchall()
    losses = [(step, json.loads(text)["train/loss"]) for step, text in written if "train/loss" in json.loads(text)]
    assert losses == [(int(row["step"]), float(row["loss"])) for row in rows(finished.steps)]
