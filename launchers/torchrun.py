"""launcher=torchrun: PyTorch's own launcher, one agent that starts the ranks.

Source: https://pytorch.org/docs/stable/elastic/run.html. The agent's store is a file, fresh for each run, and so is
the one over which the ranks meet: runs on one machine cannot clash, and nothing listens beyond the loopback interface.
"""

import os
import re
import sys
import tempfile

from manyheads.launchers.agent import run_agent
from manyheads.launchers.base import Job, Launcher
from manyheads.launchers.environment import file_rendezvous

NO_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}  # the agent's for the ranks, on all interfaces
_FAILURE = re.compile(r"rank\s*: (\d+) \(local_rank: \d+\)\s+exitcode\s*: (-?\d+)")


class Torchrun(Launcher):
    """The agent's messages go to logs/torchrun.log."""

    def launch(self, job: Job) -> None:
        with tempfile.TemporaryDirectory(prefix="manyheads-") as scratch, file_rendezvous() as rendezvous:
            run_agent(
                command(job, scratch),
                job,
                environment={**os.environ, **job.environment, **rendezvous, **NO_STORE},
                log=job.folder.logs / "torchrun.log",
                read_exit_codes=exit_codes,
                stall_timeout=self.stall_timeout,
            )


def command(job: Job, scratch: str) -> list[str]:
    """Torchrun's command line for one machine. ``scratch``: a folder for files of its own, which it would leave."""
    store = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"{scratch}/store", "--rdzv-conf", "store_type=file"]
    options = ["--local-addr", "127.0.0.1", "--log-dir", scratch, "--nproc-per-node", str(job.ranks)]
    options += [*store, "--rdzv-id", "run"]
    return [sys.executable, "-m", "torch.distributed.run", *options, "-m", job.main, str(job.folder.path)]


def exit_codes(text: str) -> dict[int, int]:
    """Of the failed ranks, from torchrun's closing report; negative: the signal that killed it."""
    return {int(rank): int(code) for rank, code in _FAILURE.findall(text)}
