"""A tracker of a user's own, kept in a file, which can be away, hang and forget; and waiting for what it is told."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from manyheads.runner.logger.logger_option import TrackerOption
from manyheads.runner.logger.tracker import Tracker

NAME = "+logger.kept._target_=tests.callbacks.tracking.Kept"
TRACKED = (NAME, "+logger.kept._option_=manyheads.runner.logger.logger_option.TrackerOption")


class Kept(Tracker):
    """``place``: a folder in which each run is a file of lines; where its file ``away`` is, nothing can be reached.

    Where there is ``hangs``, every call takes for ever. ``remembers``: it says how far it has come, as W&B does.
    """

    def __init__(self, *, place: str, remembers: bool = False, checkpoint: str = "none"):
        super().__init__(checkpoint=checkpoint)
        self.place, self.remembers = Path(place), remembers

    def open(self, run, recorded_name):
        self.answer()
        self.path = self.place / run.key
        group = run.group and [run.group.key, *run.group.overrides]
        self.note("open", pid=os.getpid(), run=run.name, tags=list(run.tags), group=group, known=recorded_name)
        steps = [each["step"] for each in lines(self.path) if each["what"] == "point"]
        return max(steps, default=-1) if self.remembers else None

    @property
    def name(self):
        return self.path.name

    @property
    def url(self):
        return f"kept://{self.path.name}"

    def publish(self, points):
        for point in points:
            self.answer()
            self.note("point", step=point.step, time=point.time, values=dict(point.values))

    def picture(self, name, png, step):
        self.answer()
        self.note("picture", name=name, step=step, size=len(png))

    def upload(self, path, name):
        self.note("file", name=name, size=path.stat().st_size)

    def close(self, outcome):
        self.note("close", status=outcome.status, error=outcome.error, step=outcome.step, values=dict(outcome.values))

    def answer(self):
        if (self.place / "away").exists():
            raise ConnectionError(f"http://me:{os.environ.get('TRACKER_TOKEN', 'pw')}@tracker cannot be reached")
        while (self.place / "hangs").exists():
            time.sleep(0.05)

    def note(self, what: str, **more: Any) -> None:
        with open(self.path, "a") as file:
            file.write(json.dumps({"what": what, **more}) + "\n")


class Elsewhere(TrackerOption):
    package = "no_such_package"


def lines(path: Path) -> list[dict[str, Any]]:
    """What a tracker was told of a run."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def runs(place: Path) -> list[Path]:
    return [path for path in place.iterdir() if path.name not in ("away", "hangs")]


def only(place: Path, what: str) -> list[dict[str, Any]]:
    """Of the only run that there is."""
    (path,) = runs(place)
    return [each for each in lines(path) if each["what"] == what]


def curve(place: Path, tag: str) -> list[tuple[int, float]]:
    return [(each["step"], each["values"][tag]) for each in only(place, "point") if tag in each["values"]]


def wait_for(condition: Callable[[], bool], *, seconds: float) -> None:
    """Raises AssertionError where the condition is not true within so many seconds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds:g} s"
        time.sleep(0.05)
