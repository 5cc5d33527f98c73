"""torchft's lighthouse, which tracks live replicas: a separate process, restarted when it dies."""

import os
import signal
import sys
import time
from multiprocessing.process import BaseProcess

from manyheads.launchers import warm_server as warm
from manyheads.launchers.job import Job
from manyheads.runner.machine import addresses
from manyheads.runner.machine.process import RECEIVED, die_with_parent, heard_signals
from manyheads.runner.parallel.replicated import LIGHTHOUSE, PLACE
from manyheads.runner.run.data_files import no_link

JOIN_MS = 5000  # a quorum waits this long for live replicas that have not asked to join
TICK_MS = 20


class Lighthouse:
    """Runs the lighthouse, which keeps no state that a run needs: replicas wait until it is back on the same port.

    ``host``: the address of this machine on which it listens.
    """

    def __init__(self, job: Job, *, host: str = "127.0.0.1", heartbeat_timeout: float):
        self._host = host
        self._log, self._environment = str(job.folder.logs / "lighthouse.log"), job.environment
        self._port, self._timeout = addresses.free_port(host), round(1000 * heartbeat_timeout)
        self.restarts = 0
        self.process = self._start()

    @property
    def address(self) -> str:
        """The address at which replicas reach it."""
        return f"http://{self._host}:{self._port}"

    def variables(self, healing: str) -> dict[str, str]:
        """Environment variables of replicas. ``healing``: a folder that all see, for the state of those that rejoin."""
        return {LIGHTHOUSE: self.address, PLACE: healing, "RUST_LOG": "warn"}

    def keep(self) -> None:
        """Restart the lighthouse if it has died."""
        if self.process.exitcode is not None:
            self.restarts += 1
            self.process = self._start()

    def _start(self) -> BaseProcess:
        return warm.fork(_shine, f"{self._host}:{self._port}", self._timeout, self._log, environment=self._environment)


def _shine(bind: str, timeout: int, log: str) -> None:
    """Run torchft's lighthouse until this process ends."""
    die_with_parent()
    os.setpgid(0, 0)  # the terminal's Ctrl-C is for the parent alone
    for signum in heard_signals():
        signal.signal(signum, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, RECEIVED)
    os.environ["RUST_LOG"] = "warn"
    descriptor = no_link(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(descriptor, sys.stdout.fileno())
    os.dup2(descriptor, sys.stderr.fileno())
    from torchft.coordination import LighthouseServer

    server = LighthouseServer(
        bind=bind, min_replicas=1, join_timeout_ms=JOIN_MS, quorum_tick_ms=TICK_MS, heartbeat_timeout_ms=timeout
    )
    while server is not None:
        time.sleep(3600)
