"""launcher=torchrun: PyTorch's own launcher, one agent that starts the ranks.

Source: https://pytorch.org/docs/stable/elastic/run.html. A fresh rendezvous on a free port of the loopback
interface for each run, so that runs on one machine cannot meet.
"""

import os
import re
import sys

from launchers.agent import run_agent
from launchers.base import Job, Launcher

_FAILURE = re.compile(r"rank\s*: (\d+) \(local_rank: \d+\)\s+exitcode\s*: (-?\d+)")


class Torchrun(Launcher):
    """The agent's messages go to logs/torchrun.log; rank 0 writes to the terminal through it."""

    def launch(self, job: Job) -> None:
        run_agent(
            command(job),
            job,
            environment={**os.environ, **job.environment},
            log=job.folder.logs / "torchrun.log",
            read_exit_codes=exit_codes,
            stall_timeout=self.stall_timeout,
        )


def command(job: Job) -> list[str]:
    """torchrun's command line for one machine."""
    options = ["--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", str(job.ranks)]
    return [sys.executable, "-m", "torch.distributed.run", *options, "-m", "runner.worker", str(job.folder.path)]


def exit_codes(text: str) -> dict[int, int]:
    """Of the failed ranks, from torchrun's closing report; negative: the signal that killed it."""
    return {int(rank): int(code) for rank, code in _FAILURE.findall(text)}
