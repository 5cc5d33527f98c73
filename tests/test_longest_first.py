"""Files start in the order of their recorded seconds, which a run renews."""

import json
from pathlib import Path
from types import SimpleNamespace

from tests.longest_first import Recorder, recorded, sort


def named(*ids: str):
    return [SimpleNamespace(nodeid=each) for each in ids]


def test_longest_file_is_first_after_those_without_seconds():
    items = named("a.py::1", "b.py::2", "new.py::1", "c.py::1", "b.py::1", "also_new.py::1")
    sort(items, {"a.py": 3.0, "b.py": 20.0, "c.py": 100.0})
    assert [each.nodeid for each in items] == [
        *("also_new.py::1", "new.py::1", "c.py::1"),
        *("b.py::2", "b.py::1"),  # of a file in their own order
        "a.py::1",
    ]


def test_a_run_renews_the_seconds_of_its_files(tmp_path: Path):
    (tmp_path / "ran.py").touch()
    (tmp_path / "stays.py").touch()
    path = tmp_path / "seconds.json"
    path.write_text(json.dumps({"ran.py": 9.0, "stays.py": 5.0, "removed.py": 7.0}))
    recorder = Recorder(path)
    for report in named("ran.py::1", "ran.py::1", "ran.py::2", "added.py::1"):
        report.duration = 1.04
        recorder.pytest_runtest_logreport(report)
    (tmp_path / "added.py").touch()
    recorder.pytest_sessionfinish(SimpleNamespace(config=SimpleNamespace(rootpath=tmp_path)))
    assert recorded(path) == {"added.py": 1.0, "ran.py": 3.1, "stays.py": 5.0}
