"""launcher=torchrun: PyTorch's own launcher, one agent that starts the ranks.

Source: https://pytorch.org/docs/stable/elastic/run.html. A fresh rendezvous on a free port of the loopback
interface for each run, so that runs on one machine cannot meet.
"""

import os
import re
import sys
import tempfile
from collections.abc import Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from manyheads.launchers import elastic
from manyheads.launchers.agent import run_agent
from manyheads.launchers.base import Job, Launcher
from manyheads.launchers.processes import supervise
from manyheads.launchers.spawn import SpawnedRanks
from manyheads.launchers.warm import server as warm

_FAILURE = re.compile(r"rank\s*: (\d+) \(local_rank: \d+\)\s+exitcode\s*: (-?\d+)")


class Torchrun(Launcher):
    """The agent's messages go to logs/torchrun.log. ``warm``: it and the ranks are forked from launchers/warm."""

    def __init__(self, *, warm: bool = False, **options: Any):
        super().__init__(**options)
        self.warm = warm

    def prepare(self, environment: Mapping[str, str]) -> None:
        """Begin in the background with what takes long. ``environment``: that of the job to come."""
        if self.warm:
            warm.start(environment)

    def launch(self, job: Job) -> None:
        log = job.folder.logs / "torchrun.log"
        if self.warm:
            self._launch_warm(job, log)
            return
        run_agent(
            command(job),
            job,
            environment={**os.environ, **job.environment},
            log=log,
            read_exit_codes=exit_codes,
            stall_timeout=self.stall_timeout,
        )

    def _launch_warm(self, job: Job, log: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="manyheads-") as scratch:
            arguments = (str(job.folder.path), job.ranks, str(log), scratch)
            process = warm.fork(elastic.agent, *arguments, environment=job.environment)
            supervise(WarmAgent(process, log), job, stall_timeout=self.stall_timeout)


class WarmAgent(SpawnedRanks):
    """The agent and its ranks, in the words of ``manyheads.launchers.processes.Ranks``."""

    patience = 2.0

    def __init__(self, process: BaseProcess, log: Path):
        super().__init__([process])
        self._log = log

    def exit_codes(self) -> dict[int, int]:
        """The failures that the agent lists when it has ended; it says nothing of ranks that ended well."""
        return {} if self.running() else exit_codes(self._log.read_text(errors="replace"))


def command(job: Job) -> list[str]:
    """torchrun's command line for one machine."""
    options = ["--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", str(job.ranks)]
    return [sys.executable, "-m", "torch.distributed.run", *options, "-m", job.main, str(job.folder.path)]


def exit_codes(text: str) -> dict[int, int]:
    """Of the failed ranks, from torchrun's closing report; negative: the signal that killed it."""
    return {int(rank): int(code) for rank, code in _FAILURE.findall(text)}
