"""From the command to the prompt, and from the command to a finished run of two ranks."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.benchmarks.measure import Comparison, compare

PROJECT = Path(__file__).resolve().parent.parent.parent
MINIMAL = """
import torch, torch.distributed as dist
from torch import nn
dist.init_process_group("gloo")
torch.manual_seed(0)
net = nn.parallel.DistributedDataParallel(nn.Linear(64, 10))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for _ in range(2):
    optimizer.zero_grad()
    nn.functional.cross_entropy(net(torch.randn(32, 64)), torch.randint(10, (32,))).backward()
    optimizer.step()
dist.destroy_process_group()
"""


def seconds(*command: str) -> float:
    start = time.perf_counter()
    subprocess.run(command, cwd=PROJECT, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - start


def composing(rounds: int = 5) -> Comparison:
    """Showing the config against importing torch."""
    candidates = {
        "python -c 'import torch'": lambda: seconds(sys.executable, "-c", "import torch"),
        "python run.py --cfg job": lambda: seconds(sys.executable, "run.py", "--cfg", "job"),
    }
    return compare("start without a run", candidates, rounds=rounds)


def running(rounds: int = 5) -> Comparison:
    """A whole run of two ranks and two steps, with evaluation, checkpoint and tables, against a bare script."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "minimal.py"
        script.write_text(MINIMAL)
        torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script))

        def ours(launcher: str) -> float:
            where = tempfile.mkdtemp(dir=folder)
            overrides = ("parallel=ddp", f"launcher={launcher}", "trainer.max_steps=2", f"hydra.run.dir={where}")
            return seconds(sys.executable, "run.py", *overrides)

        candidates = {
            "torchrun of a bare DDP script": lambda: seconds(*torchrun),
            "manyheads launcher=spawn": lambda: ours("spawn"),
            "manyheads launcher=torchrun": lambda: ours("torchrun"),
        }
        return compare("2 ranks, 2 steps, start to end", candidates, rounds=rounds)
