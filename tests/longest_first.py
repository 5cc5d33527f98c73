"""The order of tests: the files that take longest start first, so that none of them is left at the end.

xdist itself starts the files with the most tests first, and process groups, of a few tests each, last. Each file's
seconds are in ``seconds.json``, which ``make test-ci PYTEST=--record-seconds`` renews.
"""

import json
import os
from collections import Counter
from pathlib import Path

import pytest

SECONDS = Path(__file__).with_name("seconds.json")


def sort(items: list[pytest.Item], seconds: dict[str, float]) -> None:
    """Sort tests by their file, in place. A file without recorded seconds could be long, and is among the first."""
    items.sort(key=lambda item: (-seconds.get(file_of(item), float("inf")), file_of(item)))


def recorded(path: Path = SECONDS) -> dict[str, float]:
    """Each file's seconds, by its path from the project's folder."""
    return json.loads(path.read_text())


class Recorder:
    """A plugin that renews the seconds of the files that ran, and drops those of files that no longer exist."""

    def __init__(self, path: Path = SECONDS):
        self._path = path
        self._seconds: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[file_of(report)] += report.duration

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        kept = {file: each for file, each in recorded(self._path).items() if (session.config.rootpath / file).exists()}
        seconds = kept | {file: round(each, 1) for file, each in self._seconds.items()}
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps(seconds, indent=0, sort_keys=True) + "\n")
        os.replace(new, self._path)


def file_of(test: pytest.Item | pytest.TestReport) -> str:
    return test.nodeid.partition("::")[0]
