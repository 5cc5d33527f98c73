"""The publisher: a separate process that follows a run folder until it is told to stop, or the parent ends."""

import logging
import os
import select
import signal
import sys
import threading

from manyheads.launchers.publishing.empty_folder import in_empty_folder
from manyheads.launchers.publishing.publish_state import masked, note_failure, one_publisher
from manyheads.launchers.publishing.publisher import Publisher
from manyheads.runner.logger.tracker import Tracker
from manyheads.runner.option.locate import Section, instantiate_named
from manyheads.runner.run.run_folder import RunFolder

MAIN = "manyheads.launchers.publishing.publisher_main"
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
    tracker: Tracker = instantiate_named("logger", {name: section}, Tracker)[name]
    return tracker


def follow(publisher: Publisher) -> int:
    """Publish new rows until the run is over, then the rest and the outcome; returns the exit code."""
    pause = 0.0
    while not _is_over(pause):
        try:
            publisher.catch_up()
            pause = EVERY_SECONDS
        except Exception as error:  # of any kind: the run continues, and publishing is retried
            log.warning("%s", masked(error))
            pause = min(LONGEST_PAUSE, max(EVERY_SECONDS, 2 * pause))
    threading.Thread(target=_end_soon, daemon=True).start()
    try:
        publisher.finish(is_running=False)
    except Exception as error:
        log.warning("%s", masked(error))
        return 1
    return 0


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
