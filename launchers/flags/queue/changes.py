"""Changes of the queue that its user asks for: a run is added, cancelled or moved. Each is made within a turn."""

from manyheads.launchers.flags.queue.entries import QueueEntry, RunQueue
from manyheads.launchers.flags.queue.outcome import has_ended, mark, status_of
from manyheads.launchers.launcher_option import FREE
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine import invocation
from manyheads.runner.run.files import is_locked
from manyheads.runner.run.frozen import read_frozen
from manyheads.runner.run.run_folder import RunFolder


def add(queue: RunQueue, run: RunFolder) -> None:
    """Put a run that was cancelled or interrupted behind the others. Raises ConfigurationError, OSError."""
    if not run.is_own():
        raise _refused(run, "is not a run of yours")
    if any(entry.path == str(run.path) for entry in queue.entries()):
        raise _refused(run, "is in the queue already")
    if has_ended(run):
        raise _refused(run, f"has ended: {status_of(run)}")
    if is_locked(run.config):
        raise _refused(run, "is being run by another process")
    if read_frozen(run.config, only=("launcher",)).get("launcher.devices") != FREE:
        raise _refused(run, f"was started without launcher.devices={FREE}, so it would not wait for room. Resume it")
    queue.add(run)


def cancel(queue: RunQueue, run: RunFolder) -> None:
    """Take a run out of the queue; one that is being run is stopped by its worker. Raises as ``add``."""
    entry = _entry(queue, run)
    if not entry.is_taken and status_of(run) == "queued":
        mark(run, "interrupted")
    queue.remove(entry)


def move_first(queue: RunQueue, run: RunFolder) -> None:
    """Let a run that waits be the next one. Raises as ``add``."""
    entry = _entry(queue, run)
    if entry.is_taken:
        raise _refused(run, "has been taken by a worker, so it is ahead of those that wait")
    queue.move_first(entry)


def _entry(queue: RunQueue, run: RunFolder) -> QueueEntry:
    if (entry := next((entry for entry in queue.entries() if entry.path == str(run.path)), None)) is None:
        raise _refused(run, f"is not in the queue; `{invocation.command('queue')}` lists what is")
    return entry


def _refused(run: RunFolder, why: str) -> ConfigurationError:
    return ConfigurationError(f"{run} {why}.", key="run")
