"""Checks that all machines of a run share its folder, and waits for a folder that has become unavailable."""

import secrets
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from manyheads.launchers.job import Job
from manyheads.launchers.nodes.wire import Message
from manyheads.runner.errors import ConfigurationError, Failure, Interrupted, RunFailed
from manyheads.runner.run.data_files import no_link, read_text
from manyheads.runner.run.files import matching, remove
from manyheads.runner.run.run_folder import RunFolder

TOKEN = ".nodes"
RETRY_SECONDS = 0.5  # between two attempts to reach the folder


@contextmanager
def storage_token(job: Job) -> Iterator[Message]:
    """A token in the run folder, by which each machine recognizes the folder. Raises RunFailed if it is unwritable."""
    token = secrets.token_hex(8)
    try:
        _write(job.folder.logs / TOKEN, token)
    except OSError as error:
        raise RunFailed(_unwritable(job, error)) from error
    try:
        yield {"token": token}
    finally:
        with suppress(OSError):  # the disk may be what failed
            for path in matching(job.folder.logs, ".node*"):
                remove(path)


def check_storage(folder: RunFolder, order: Message) -> None:
    """Raises ConfigurationError if this node sees a different folder than the parent, or cannot write there."""
    token, name = order["token"], order["name"]
    try:
        seen = read_text(folder.logs / TOKEN)
        _write(folder.logs / f".node-{order['first']}", token)
    except OSError as error:
        seen = error.strerror or str(error)
    if seen != token:
        fault = "it sees another run's files there" if len(seen) == len(token) else f"it reports: {seen}"
        raise ConfigurationError(
            f"{name} does not share the run folder {folder.path} with the parent: {fault}. Put it on storage that all "
            "nodes see and can write: hydra.run.dir."
        )


def seen(path: Path) -> str:
    """A file's content, if this machine can also write next to it; else the reason why not."""
    try:
        beside = path.with_name(f".seen-{socket.gethostname()}")
        _write(beside, "")
        remove(beside)
        return read_text(path)[:100]
    except OSError as error:
        return error.strerror or str(error)


def _write(path: Path, text: str) -> None:
    with open(path, "w", opener=no_link) as file:
        file.write(text)


def clear_attempt(job: Job, seconds: float) -> None:
    """Remove the last attempt's reports; wait up to ``seconds`` for an unavailable folder.

    Raises RunFailed or Interrupted.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            job.folder.config.stat()  # fails if another disk is mounted in its place
            job.folder.clear_attempt()
            return
        except OSError as error:
            if job.signals:
                raise Interrupted(job.signals[0]) from error
            if time.monotonic() > deadline:
                raise RunFailed(_unwritable(job, error)) from error
        time.sleep(RETRY_SECONDS)


def _unwritable(job: Job, error: OSError) -> Failure:
    message = f"the run's parent cannot write to {job.folder.path}: {error.strerror}."
    return Failure(type=type(error).__name__, node=socket.gethostname(), message=message)
