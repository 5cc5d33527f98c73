"""From the command to the prompt, and from the command to the first training step of two ranks."""

import importlib.util
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from manyheads.runner.run.run_folder import RunFolder
from tests.benchmarks.measure import Comparison, compare

BARE, ACCELERATE = "torchrun of a bare DDP script", "accelerate launch of the same script"
SPAWN, OURS_TORCHRUN = "manyheads launcher=spawn", "manyheads launcher=torchrun"
PROJECT = Path(__file__).resolve().parent.parent.parent
# Steps of a linear model on random numbers; says when the first one was done. It leaves in a hurry, since torch 2.15
# may abort when the interpreter takes down a DistributedDataParallel after its process group.
MINIMAL = """
import os, sys, time, torch, torch.distributed as dist
from torch import nn
torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(0)
net = nn.parallel.DistributedDataParallel(nn.Linear(64, 10))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(int(sys.argv[2])):
    optimizer.zero_grad()
    nn.functional.cross_entropy(net(torch.randn(32, 64)), torch.randint(10, (32,))).backward()
    optimizer.step()
    if step == 0 and dist.get_rank() == 0:
        open(sys.argv[1], "w").write(str(time.time()))
dist.destroy_process_group()
os._exit(0)
"""
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


def accelerate() -> tuple[str, ...]:
    """Its launcher, on a port of its own: the one of the last run may still be held."""
    with socket.create_server(("localhost", 0)) as server:
        port = str(server.getsockname()[1])
    shape = ("--multi_gpu", "--num_processes", "2", "--num_machines", "1", "--main_process_port", port)
    return (
        sys.executable,
        "-m",
        "accelerate.commands.launch",
        *shape,
        "--mixed_precision",
        "no",
        "--dynamo_backend",
        "no",
    )


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


def first_step(rounds: int = 5) -> Comparison:
    """Seconds from the command to the end of rank 0's first update, digits read and a model of convolutions built."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "minimal.py"
        script.write_text(MINIMAL)

        def theirs(*launcher: str) -> float:
            stamp, start = Path(tempfile.mktemp(dir=folder)), time.time()
            seconds(*launcher, str(script), str(stamp), "2")
            return float(stamp.read_text()) - start

        def ours(launcher: str) -> float:
            run, start = RunFolder(tempfile.mkdtemp(dir=folder)), time.time()
            overrides = ("parallel=ddp", f"launcher={launcher}", "trainer.max_steps=1", f"hydra.run.dir={run}")
            seconds(sys.executable, "run.py", *overrides)
            return run.steps.stat().st_mtime - start  # its only row is written after the first update

        candidates: dict[str, Callable[[], float]] = {
            BARE: lambda: theirs(*TORCHRUN),
            SPAWN: lambda: ours("spawn"),
            OURS_TORCHRUN: lambda: ours("torchrun"),
        }
        if importlib.util.find_spec("accelerate"):
            candidates[ACCELERATE] = lambda: theirs(*accelerate())
        return compare("command to first step, 2 ranks", candidates, rounds=rounds, warm_up=False)
