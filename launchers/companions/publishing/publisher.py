"""The publisher: synchronizes a tracker with a run folder, until it is told to stop, or the parent ends.

It is a process beside the run. After a failure, the next attempt continues where this one stopped.
"""

import hashlib
import logging
import math
import os
import select
import signal
import sys
import threading
from contextlib import suppress
from itertools import groupby

from manyheads.launchers.companions.publishing.empty_folder import in_empty_folder
from manyheads.launchers.companions.publishing.points import EPOCHS, STEPS, PictureFolder, TableRow, Tables
from manyheads.launchers.companions.publishing.publish_state import (
    PublishState,
    masked,
    note_failure,
    one_publisher,
    state_file,
)
from manyheads.launchers.companions.publishing.tracked_run import files, outcome, tracked_run
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.logger.tracker import Tracker
from manyheads.runner.option.locate import instantiate_named
from manyheads.runner.option.tree import Section
from manyheads.runner.run import scratch
from manyheads.runner.run.data_files import no_link
from manyheads.runner.run.heartbeat import Heartbeat
from manyheads.runner.run.refused_run import was_refused_by_ranks
from manyheads.runner.run.run_folder import RunFolder

AT_ONCE = 200  # rows in one request


class Publisher:
    """Publishes one run to one tracker. ``name``: the tracker's name in the config section ``logger``."""

    def __init__(self, folder: RunFolder, name: str, tracker: Tracker):
        self.folder, self.tracker = folder, tracker
        self._path = state_file(folder, name)
        self.state = PublishState.read(self._path)
        self._tables, self._pictures = Tables(folder), PictureFolder(folder)
        self._waiting = list[TableRow]()
        self._is_open = False

    def catch_up(self) -> None:
        """Publish the rows written so far. Raises whatever the tracker does."""
        try:
            self._open()
            self._publish()
            self._show(self._tables.step)
        except Exception as error:
            self._failed(error)
            raise

    def finish(self, *, is_running: bool | None = None) -> None:
        """Publish everything, including how the run ended. Raises whatever the tracker does."""
        self.catch_up()
        try:
            self._show(math.inf)
            self._upload()
            end = outcome(self.folder, step=self._tables.step, time=self._tables.time, is_running=is_running)
            self.tracker.close(end)
        except Exception as error:
            self._failed(error)
            raise
        self.state.status, self.state.error = end.status, None
        self._note()

    def _open(self) -> None:
        if self._is_open:
            return
        run = tracked_run(self.folder)
        self.state.status = None
        certain = self.tracker.open(run, self.state.run)
        if certain is not None:
            self.state.steps, self.state.epochs = min(self.state.steps, certain), min(self.state.epochs, certain)
            if self.state.run is None:
                self.state.steps = self.state.epochs = certain
        if certain == -1:
            self.state.files, self.state.pictures = {}, {}
        self.state.run, self.state.url = self.tracker.name, self.tracker.url
        self._is_open = True
        self._note()

    def _publish(self) -> None:
        while new := self._tables.rows():
            self._waiting += new
        while self._waiting:
            rows = self._waiting[:AT_ONCE]
            marks = {STEPS: self.state.steps, EPOCHS: self.state.epochs}
            if points := [row.point for row in rows if row.point.step > marks[row.table]]:
                self.tracker.publish(points)
            for table, group in groupby(sorted(rows, key=lambda row: row.table), key=lambda row: row.table):
                marks[table] = max(marks[table], *(row.point.step for row in group))
            self.state.steps, self.state.epochs = marks[STEPS], marks[EPOCHS]
            del self._waiting[:AT_ONCE]
            self._note()

    def _show(self, last: float) -> None:
        """Show new pictures of at most ``last`` updates: trackers take nothing of earlier ones than they have."""
        for picture in self._pictures.new(last):
            if self.state.pictures.get(picture.name) != picture.digest:
                self.tracker.picture(picture.name, picture.png, picture.step)
                self.state.pictures[picture.name] = picture.digest
                self._note()

    def _upload(self) -> None:
        for path in files(self.folder, checkpoint=self.tracker.checkpoint):
            name = str(path.relative_to(self.folder.path))
            with suppress(FileNotFoundError), open(path, "rb", opener=no_link) as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                if self.state.files.get(name) == digest:
                    continue
                with scratch.folder() as folder:  # clients open paths, and follow links
                    same = folder / path.name
                    same.symlink_to(f"/dev/fd/{file.fileno()}")
                    self.tracker.upload(same, name)
                self.state.files[name] = digest
                self._note()

    def _failed(self, error: Exception) -> None:
        self._is_open = False
        self.state.error = masked(error)
        self._note()

    def _note(self) -> None:
        self.state.write(self._path)


MAIN = "manyheads.launchers.companions.publishing.publisher"
BEGIN_SECONDS = 0.2  # between two looks whether the ranks have accepted the run
EVERY_SECONDS = 2.0
LONGEST_PAUSE = 60.0  # between two attempts to reach a tracker
PATIENCE_SECONDS = 30.0  # for the rest, once the run is over
log = logging.getLogger(__name__)


def main(path: str, name: str) -> int:
    """Publish the run in ``path`` to its tracker ``name``, recording the progress; returns the exit code."""
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.WARNING)
    os.nice(10)  # the run's own processes come first
    folder = RunFolder(path)
    with one_publisher(folder, name):
        try:
            publisher = Publisher(folder, name, tracker_of(name, folder.read_config()["logger"][name]))
        except Exception as error:
            note_failure(folder, name, error)
            return 1
        with in_empty_folder():
            return follow(publisher)


def tracker_of(name: str, section: Section) -> Tracker:
    """The tracker that an entry of the config describes. Raises ConfigurationError."""
    return instantiate_named("logger", {name: section}, Tracker)[name]


def follow(publisher: Publisher) -> int:
    """Publish new rows until the run is over, then the rest and the outcome; returns the exit code.

    The tracker has nothing of a run that its ranks refuse.
    """
    pause = 0.0
    while not _is_over(pause):
        if not _has_begun(publisher.folder):
            pause = BEGIN_SECONDS
            continue
        try:
            publisher.catch_up()
            pause = EVERY_SECONDS
        except Exception as error:  # of any kind: the run continues, and publishing is retried
            log.warning("%s", masked(error))
            pause = min(LONGEST_PAUSE, max(EVERY_SECONDS, 2 * pause))
    if was_refused_by_ranks(publisher.folder):
        return 0
    threading.Thread(target=_end_soon, daemon=True).start()
    try:
        publisher.finish(is_running=False)
    except Exception as error:
        log.warning("%s", masked(error))
        return 1
    return 0


def _has_begun(folder: RunFolder) -> bool:
    """Whether the ranks have accepted the run; True if they, or their heartbeats, are on other machines."""
    try:
        return Heartbeat(folder.heartbeat).beats() > 0
    except (OSError, ConfigurationError, ValueError):
        return not was_refused_by_ranks(folder)


def _is_over(seconds: float) -> bool:
    """Whether standard input ends within ``seconds``: the parent has closed it, or died."""
    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    return bool(ready)


def _end_soon() -> None:
    """Kill this process and its children after a while, even if a client still waits and the parent is gone."""
    threading.Event().wait(PATIENCE_SECONDS)
    os.killpg(0, signal.SIGKILL)  # this process leads a process group of its own


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
