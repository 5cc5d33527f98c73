"""launcher=torchrun: PyTorch's own launcher, one agent that starts the ranks.

Source: https://pytorch.org/docs/stable/elastic/run.html. A fresh rendezvous on a free port of the loopback
interface for each run, so that runs on one machine cannot meet.
"""

import os
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import IO

from launchers.base import Job, Launcher
from launchers.processes import supervise
from runner.parent_death import die_with_parent

_FAILURE = re.compile(r"rank\s*: (\d+) \(local_rank: \d+\)\s+exitcode\s*: (-?\d+)")


class Torchrun(Launcher):
    """The agent's messages go to logs/torchrun.log; rank 0 writes to the terminal through it."""

    def launch(self, job: Job) -> None:
        path = job.folder.logs / "torchrun.log"
        with open(path, "wb") as log, self._agent(job, log) as agent:
            supervise(TorchrunRanks(agent, path), job, stall_timeout=self.stall_timeout)

    def _agent(self, job: Job, log: IO[bytes]) -> subprocess.Popen:
        return subprocess.Popen(
            command(job),
            env={**os.environ, **job.environment},
            stdin=subprocess.DEVNULL,
            stderr=log,
            start_new_session=True,  # the terminal's Ctrl-C is for the parent alone
            preexec_fn=die_with_parent,
        )


def command(job: Job) -> list[str]:
    """torchrun's command line for one machine."""
    options = ["--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", str(job.ranks)]
    return [sys.executable, "-m", "torch.distributed.run", *options, "-m", "runner.worker", str(job.folder.path)]


class TorchrunRanks:
    """The agent and its ranks, in the words of ``launchers.processes.Ranks``."""

    patience = 2.0

    def __init__(self, agent: subprocess.Popen, log: Path):
        self._agent, self._log = agent, log

    def roots(self) -> list[int]:
        return [self._agent.pid]

    def running(self) -> bool:
        return self._agent.poll() is None

    def wait(self, seconds: float) -> None:
        with suppress(subprocess.TimeoutExpired):
            self._agent.wait(seconds)

    def exit_codes(self) -> dict[int, int]:
        """The failures that the agent lists when it has ended; it says nothing of ranks that ended well."""
        if self._agent.poll() is None:
            return {}
        text = self._log.read_text(errors="replace")
        return {int(rank): int(code) for rank, code in _FAILURE.findall(text)}
