"""What every launcher is given and must do; the way from a frozen run folder to its result."""

import logging
import os
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from manyheads.launchers.gpu_load import gpu_load
from manyheads.launchers.signals import received_signals
from manyheads.runner.config.checks.complete import gpus_used
from manyheads.runner.machine import hardware
from manyheads.runner.run.errors import ConfigurationError, Interrupted, RunFailed
from manyheads.runner.run.failure import Failure
from manyheads.runner.run.heartbeat import Heartbeat
from manyheads.runner.run.locate import locate
from manyheads.runner.run.result import finish
from manyheads.runner.run.run_folder import RunFolder

log = logging.getLogger(__name__)
TRAIN = "manyheads.runner.loop.main"
PROJECT = str(Path(__file__).resolve().parent.parent / ".names")


@dataclass(frozen=True)
class Job:
    """One run to start: its folder, the number of its ranks, the ranks' environment."""

    folder: RunFolder
    ranks: int
    environment: dict[str, str]
    heartbeat: Heartbeat
    signals: list[int]  # those that the parent has received, in order
    timeout: float | None = None  # minutes that the run may take
    main: str = TRAIN  # the module whose main(folder) is a rank
    started: float = field(default_factory=time.monotonic)

    def check_timeout(self) -> None:
        """Raises RunFailed when the run takes longer than it may."""
        if self.timeout is not None and time.monotonic() - self.started > 60 * self.timeout:
            raise RunFailed(timed_out(self.timeout))


class Launcher:
    """Starts the ranks of one run and returns when all have ended."""

    def __init__(
        self,
        *,
        name: str,
        nproc_per_node: int,
        threads_per_rank: int,
        stall_timeout: float,
        timeout: float | None = None,
    ):
        self.name = name
        self.ranks = nproc_per_node
        self.threads = threads_per_rank
        self.stall_timeout = stall_timeout
        self.timeout = timeout
        self.machines: dict[str, int] = {}  # ranks on each, by name; empty: this machine alone

    def prepare(self, environment: Mapping[str, str]) -> None:
        """Begin in the background with what takes long. ``environment``: that of the job to come."""

    def launch(self, job: Job) -> None:
        """Raises RunFailed, ConfigurationError (found by a rank) or Interrupted; leaves no process behind."""
        raise NotImplementedError

    def apart(self) -> "Launcher":
        """The same, with no rank in the parent's own process."""
        return self


def launch(folder: RunFolder, *, apart: bool = False, main: str = TRAIN) -> dict[str, Any]:
    """Run, or go on with, the run that is frozen in ``folder``; returns the content of its result.json.

    ``apart``: no rank may train in this process, which has other jobs to do, and must outlive this one. ``main``: the
    module whose main(folder) is a rank; with ``apart``.
    """
    with folder.locked(), received_signals() as signals:
        config = folder.read_config()
        return _launch(folder, config, _instantiate(config["launcher"], apart=apart), signals, main)


def prepare(config: dict[str, Any], *, apart: bool = False) -> None:
    """Begin in the background with what takes long in launching this config's run; returns at once."""
    launcher = _instantiate(config["launcher"], apart=apart)
    launcher.prepare(environment(launcher))


def _launch(
    folder: RunFolder, config: dict[str, Any], launcher: Launcher, signals: list[int], main: str
) -> dict[str, Any]:
    sys.path += [path for path in (PROJECT, os.getcwd()) if path not in sys.path]  # where the user's classes may be
    folder.clear_attempt()
    heartbeat = Heartbeat.create(folder.heartbeat, ranks=launcher.ranks)
    job = Job(folder, launcher.ranks, environment(launcher), heartbeat, signals, launcher.timeout, main)
    log.info("%s: %d x %s by %s", folder, launcher.ranks, config["parallel"]["name"], launcher.name)
    try:
        with gpu_load(folder.gpu, hardware.gpu_indices()[: gpus_used(config)]):
            launcher.launch(job)
    except (RunFailed, ConfigurationError, Interrupted) as reason:
        result = finish(folder, config, time.monotonic() - job.started, reason)
        log.info("%s: %s after %.1f s", folder, result["status"], result["wall_seconds"])
        raise
    finally:
        folder.heartbeat.unlink(missing_ok=True)
    result = finish(folder, config, time.monotonic() - job.started)
    log.info("%s: %s after %.1f s", folder, result["status"], result["wall_seconds"])
    return result


def timed_out(minutes: float) -> Failure:
    """The failure of a run that took too long."""
    message = f"the run took longer than launcher.timeout={minutes:g} minutes. Set it higher, or to null."
    return Failure(type="TimedOut", message=message)


def environment(launcher: Launcher) -> dict[str, str]:
    """Variables that every rank gets, alike under every launcher, so that comparisons are fair."""
    variables = {
        "OMP_NUM_THREADS": str(launcher.threads),
        "MKL_NUM_THREADS": str(launcher.threads),
        "PYTHONPATH": os.pathsep.join(
            dict.fromkeys(filter(None, [PROJECT, os.getcwd(), os.environ.get("PYTHONPATH")]))
        ),
        "MANYHEADS_PARENT": str(os.getpid()),
    }
    if sys.platform == "linux" and not launcher.machines:  # nothing need listen on other interfaces
        for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
            variables[name] = os.environ.get(name, "lo")
    return variables


@contextmanager
def meeting_point() -> Iterator[dict[str, str]]:
    """Variables by which ranks on this machine meet over a file, so that no port can clash."""
    with tempfile.TemporaryDirectory(prefix="manyheads-") as scratch:
        yield {"MANYHEADS_INIT_METHOD": (Path(scratch) / "rendezvous").as_uri()}


def tcp_meeting_point(machines: dict[str, int]) -> dict[str, str]:
    """Variables for PyTorch's own env:// rendezvous at rank 0's machine, on a port that is free here and now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    return {"MASTER_ADDR": next(iter(machines), "127.0.0.1"), "MASTER_PORT": str(port)}


@contextmanager
def variables_set(variables: dict[str, str]) -> Iterator[None]:
    """Environment variables of this process meanwhile."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _instantiate(section: dict[str, Any], *, apart: bool) -> Launcher:
    kind = locate("launcher", section["_target_"])
    launcher = kind(**{key: value for key, value in section.items() if key != "_target_"})
    return launcher.apart() if apart else launcher
