"""launcher=torchrun: PyTorch's own launcher, one agent that starts the ranks.

Source: https://pytorch.org/docs/stable/elastic/run.html. A fresh rendezvous on a free port for each run, so that runs
on one machine cannot meet. The store of its agent listens on every interface, for which torchrun has no setting;
launcher=spawn listens on the loopback interface only.
"""

import os
import re
import sys
import tempfile

from manyheads.launchers.agent import run_agent
from manyheads.launchers.base import Job, Launcher

_FAILURE = re.compile(r"rank\s*: (\d+) \(local_rank: \d+\)\s+exitcode\s*: (-?\d+)")


class Torchrun(Launcher):
    """The agent's messages go to logs/torchrun.log."""

    def launch(self, job: Job) -> None:
        with tempfile.TemporaryDirectory(prefix="manyheads-") as scratch:
            run_agent(
                command(job, scratch),
                job,
                environment={**os.environ, **job.environment},
                log=job.folder.logs / "torchrun.log",
                read_exit_codes=exit_codes,
                stall_timeout=self.stall_timeout,
            )


def command(job: Job, scratch: str) -> list[str]:
    """Torchrun's command line for one machine. ``scratch``: a folder for files of its own, which it would leave."""
    options = ["--standalone", "--local-addr", "127.0.0.1", "--log-dir", scratch, "--nproc-per-node", str(job.ranks)]
    return [sys.executable, "-m", "torch.distributed.run", *options, "-m", job.main, str(job.folder.path)]


def exit_codes(text: str) -> dict[int, int]:
    """Of the failed ranks, from torchrun's closing report; negative: the signal that killed it."""
    return {int(rank): int(code) for rank, code in _FAILURE.findall(text)}
