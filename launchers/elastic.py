"""torchrun's agent in a process forked from the warm one: torch's elastic launch API, whose ranks are forked too.

Source: https://pytorch.org/docs/stable/elastic/run.html. Everything that the API leaves behind in a process, such as
its handlers of signals, ends with this one.
"""

import multiprocessing
import os
import signal
import sys
import uuid
from multiprocessing.context import ForkServerProcess
from multiprocessing.util import Finalize
from typing import ClassVar

from manyheads.launchers.warm import server as warm
from manyheads.runner.loop.stop import SIGNALS
from manyheads.runner.run.parent_death import die_with_parent

POLL_SECONDS = 0.05  # between two looks at the ranks, of which one costs 0.2 ms


def agent(folder: str, ranks: int, log: str, scratch: str) -> None:
    """Start the ranks of one run and wait for their end; ends the process with 1 when one fails.

    ``log``: the file for its messages, with each failed rank's exit code at the end. ``scratch``: a folder for what
    the API writes for itself.
    """
    os.setsid()  # the terminal's Ctrl-C is for the parent alone
    die_with_parent()
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    os.dup2(file, sys.stderr.fileno())
    os.close(file)
    with warm.own_server():  # from now on threads come into being here, and maybe a CUDA context
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        _launch(folder, ranks, scratch)


def _launch(folder: str, ranks: int, scratch: str) -> None:
    import setproctitle
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous import rendezvous_handler_registry
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    from manyheads.launchers.forked.rendezvous import BACKEND, OneMachine

    rendezvous_handler_registry.register(BACKEND, OneMachine)
    setproctitle.setproctitle(f"manyheads: agent of {folder}")
    config = LaunchConfig(  # as of torchrun --standalone --local-addr 127.0.0.1 --nproc-per-node <ranks>
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=ranks,
        rdzv_backend=BACKEND,
        run_id=str(uuid.uuid4()),
        local_addr="127.0.0.1",
        role="default",
        max_restarts=0,
        monitor_interval=POLL_SECONDS,
        start_method="forkserver",
        logs_specs=DefaultLogsSpecs(log_dir=scratch),
    )
    multiprocessing.get_context("forkserver").Process = Rank  # type: ignore[misc]
    try:
        elastic_launch(config, rank)(folder)
    except ChildFailedError as error:
        print(error, file=sys.stderr)
        for number, process in enumerate(Rank.started):
            if process.exitcode:
                print(f"  rank      : {number} (local_rank: {number})", file=sys.stderr)
                print(f"  exitcode  : {process.exitcode} (pid: {process.pid})", file=sys.stderr)
        sys.exit(1)
    except SignalException as error:
        print(error, file=sys.stderr)
        sys.exit(128 + error.sigval)


class Rank(ForkServerProcess):
    """Remembers its like: of several ranks that failed at once, the API names one."""

    started: ClassVar[list["Rank"]] = []

    def start(self) -> None:
        super().start()
        Rank.started.append(self)


def rank(folder: str) -> None:
    """Be one rank. The agent counts it as done when this returns, and as failed when the process ends before."""
    from manyheads.runner.loop.main import work

    if code := work(folder):
        os._exit(code)
    Finalize(None, os._exit, args=(0,), exitpriority=sys.maxsize)  # without tidying up what the process takes along
