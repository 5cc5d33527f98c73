"""--progress json: reports a run's progress as events on stderr, read from its folder, wherever its ranks run."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from manyheads.launchers.companions import Accompanied, Span
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine.process import in_background
from manyheads.runner.run.files import matching
from manyheads.runner.run.progress import event, is_json
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.run.tables.tail import Tail

SPAN = Span.COMMAND
BETWEEN = 0.2  # seconds between two looks at the folder


@contextmanager
def accompany(run: Accompanied) -> Iterator[None]:
    """A context that prints a run's events for --progress json: started, row, evaluated, checkpoint, ended."""
    if not run.trains or not is_json():
        yield
        return
    folder, config = run.folder, run.run
    watched = _Watched(folder)
    trainer = {key: getattr(config.trainer, key) for key in ("epochs", "max_steps", "stop_after")}
    event("started", folder=folder.path, ranks=config.launcher.ranks, parallel=config.parallel.name, **trainer)
    try:
        with in_background(watched.follow, name="events"):
            yield
    finally:
        watched.look()
        with suppress(ConfigurationError, OSError):
            result = folder.read_result() or {}
            kept = {key: result.get(key) for key in ("status", "epochs", "steps", "metrics", "error")}
            event("ended", folder=folder.path, **kept)


class _Watched:
    """The growing files of a run folder; what they already contain is not reported."""

    def __init__(self, folder: RunFolder):
        self._folder = folder
        self._tables = [
            ("row", Tail(folder.steps)),
            ("evaluated", Tail(folder.evaluations)),
            ("evaluated", Tail(folder.epochs)),
        ]
        for _, table in self._tables:
            for _ in table.rows():
                pass
        self._checkpoints = self._saved()

    def follow(self, ended: threading.Event) -> None:
        """Look every ``BETWEEN`` seconds until ``ended`` is set."""
        while not ended.wait(BETWEEN):
            with suppress(OSError):  # a slow or full disk, which the run itself reports
                self.look()

    def look(self) -> None:
        """Print the events since the last call."""
        for name, table in self._tables:
            for row in table.rows():
                event(name, folder=self._folder.path, values=row)
        saved = self._saved()
        for name, changed in saved.items():
            if self._checkpoints.get(name) != changed:
                event("checkpoint", folder=self._folder.path, path=self._folder.checkpoints / name)
        self._checkpoints = saved

    def _saved(self) -> dict[str, Any]:
        """The checkpoints, each with the time of its last change."""
        times = {}
        with suppress(OSError):
            for path in matching(self._folder.checkpoints, "*"):
                if path.suffix == ".pt" and not path.name.startswith("."):
                    times[path.name] = path.lstat().st_mtime_ns
        return times
