"""Tiny runs of two ranks, one after another: what each costs besides its training, against a fresh torchrun."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from manyheads.runner.run.run_folder import RunFolder
from tests.benchmarks.measure import Comparison, compare
from tests.benchmarks.start import OURS_TORCHRUN, PROJECT, SPAWN, seconds

TORCHRUN = "fresh torchrun of a trivial script"
TINY = ("model.width=8", "trainer.max_steps=10", "data.batch_size=32")
TRIVIAL = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
dist.destroy_process_group()
"""


def overhead(sweep: Path, jobs: int) -> float:
    """Seconds that a job of a finished sweep costs besides its training steps: the median of all but the first.

    From one job's result to the next one's, so that what happens between them counts too.
    """
    folders = [RunFolder(sweep / str(number)) for number in range(jobs)]
    ends = [folder.result.stat().st_mtime for folder in folders]
    train = [json.loads(folder.result.read_text())["train_seconds"] for folder in folders]
    return median(end - before - trained for before, end, trained in zip(ends, ends[1:], train[1:], strict=False))


def ours(launcher: str, jobs: int, where: Path) -> float:
    sweep = Path(tempfile.mkdtemp(dir=where)) / "sweep"
    seeds = f"seed=range(1,{jobs + 1})"
    overrides = ("parallel=ddp", f"launcher={launcher}", *TINY, seeds, f"hydra.sweep.dir={sweep}")
    command = (sys.executable, "run.py", "-m", *overrides)
    subprocess.run(command, cwd=PROJECT, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return overhead(sweep, jobs)


def measure(rounds: int = 3) -> Comparison:
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "trivial.py"
        script.write_text(TRIVIAL)
        torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script))
        candidates = {
            TORCHRUN: lambda: seconds(*torchrun),
            SPAWN: lambda: ours("spawn", 6, Path(folder)),
            OURS_TORCHRUN: lambda: ours("torchrun", 3, Path(folder)),  # jobs, which take as long as starts
        }
        title = "one more job of a sweep, 2 ranks, without its training"
        return compare(title, candidates, rounds=rounds, warm_up=False)
