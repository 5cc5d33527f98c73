"""What leaves a run folder: each file that the code writes there has a line in the one list."""

import re
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import PurePath

import pytest

from manyheads.runner.run.leaving import FILES, To, may_leave
from manyheads.runner.run.run_folder import RunFolder
from tests.conftest import ROOT

OTHERS = ("*", ".*", "*/.*", "logs/*")  # what the list says of all files without a line
WRITTEN = re.compile(r"\blogs / (?:f?\"([^\"]+)\"|([A-Z]\w*)\b)")


def named(name: str) -> str:
    """The line of the list that decides about a file."""
    return next(pattern for pattern in FILES if fnmatchcase(name, pattern))


def in_logs() -> set[str]:
    """The names of all files in logs/ that a module of this project names."""
    found = set()
    for path in [*(ROOT / "runner").rglob("*.py"), *(ROOT / "launchers").rglob("*.py")]:
        text = path.read_text()
        for literal, constant in WRITTEN.findall(text):
            for value in [literal] if constant == "" else re.findall(rf"^{constant}\s*=\s*f?\"([^\"]+)\"", text, re.M):
                found.add(re.sub(r"\{.*?\}", "x", value))
    return found


def test_each_file_in_logs_has_a_line():
    names = in_logs()
    assert {"rank_x.log", "node_x.log", ".nodes"} <= names
    assert [name for name in sorted(names) if named(f"logs/{name}") in OTHERS] == []


def test_each_file_of_a_run_folder_has_a_line():
    paths = {
        str(getattr(RunFolder("/run"), name).relative_to("/run"))
        for name, value in vars(RunFolder).items()
        if isinstance(value, cached_property)
    }
    assert len(paths) > 15
    without = {path for path in paths if all(named(f"{path}{file}") in OTHERS for file in ("", "/x", "/x.png"))}
    assert without == {"logs"}


@pytest.mark.parametrize(
    ("path", "to"),
    [
        ("logs/nodes.key", To.NOWHERE),
        ("logs/.nodes", To.NOWHERE),
        ("logs/something_new", To.NOWHERE),
        ("logs/heartbeat", To.NOWHERE),
        ("state/manyheads/key", To.NOWHERE),
        (".env", To.NOWHERE),
        ("checkpoints/.last.pt.0123.aside", To.NOWHERE),
        ("checkpoints/last.aside/0.pt", To.NOWHERE),
        ("logs/rank_0.log", To.STORAGE),
        (".hydra/config.yaml", To.STORAGE),
        ("checkpoints/last/rank_0.pt", To.STORAGE),
        ("predictions.csv", To.STORAGE),
        ("of_a_callback/of_my_own.npy", To.STORAGE),
        ("steps.csv", To.TRACKERS),
        ("pictures/confusion_matrix.png", To.TRACKERS),
    ],
)
def test_where_a_file_may_be_sent(path, to):
    assert [may_leave(PurePath(path), each) for each in (To.STORAGE, To.TRACKERS)] == [
        to >= To.STORAGE,
        to >= To.TRACKERS,
    ]
