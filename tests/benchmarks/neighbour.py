"""Training with a thread for each core beside a process that is busy on one of them."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from manyheads.runner.run.run_folder import RunFolder
from tests.benchmarks.measure import Comparison, compare
from tests.benchmarks.start import PROJECT

OURS, PASSIVE = "launcher.wait_policy=brief", "OMP_WAIT_POLICY=PASSIVE"
DEFAULT, ACTIVE = "launcher.wait_policy=auto, the default", "launcher.wait_policy=active"
STEPS = 100
SHORT = (f"trainer.max_steps={STEPS}", "trainer.evaluate_every=0", "checkpoint.every=0", "trainer.device=cpu")
UNTIL_ORPHANED = "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"
CHOSEN = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")


@contextmanager
def busy(programs: int = 1) -> Iterator[None]:
    """Other processes compute meanwhile, each as much as it can."""
    with ExitStack() as stack:
        for _ in range(programs):
            process = stack.enter_context(subprocess.Popen([sys.executable, "-c", UNTIL_ORPHANED]))
            stack.callback(process.kill)
        yield


def seconds(where: Path, *overrides: str, **variables: str) -> float:
    """Per sample, without warm-up, as the run itself measures it."""
    folder = RunFolder(tempfile.mkdtemp(dir=where) + "/run")
    environment = {name: value for name, value in os.environ.items() if name not in CHOSEN} | variables
    command = (sys.executable, "run.py", *SHORT, *overrides, f"hydra.run.dir={folder.path}")
    subprocess.run(command, cwd=PROJECT, env=environment, check=True, stdout=subprocess.DEVNULL)
    result = folder.read_result()
    assert result is not None
    return 1 / result["samples_per_second"]


def measure(rounds: int = 5) -> Comparison:
    with tempfile.TemporaryDirectory() as folder, busy():
        where = Path(folder)
        candidates = {
            PASSIVE: lambda: seconds(where, OMP_WAIT_POLICY="PASSIVE"),
            OURS: lambda: seconds(where, "launcher.wait_policy=brief"),
            DEFAULT: lambda: seconds(where),
            ACTIVE: lambda: seconds(where, "launcher.wait_policy=active"),
        }
        return compare("a run beside a busy process", candidates, rounds=rounds)
