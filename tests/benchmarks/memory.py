"""Memory of a run of two ranks with everything that belongs to it, against a bare script under torchrun."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from tests.benchmarks.measure import Comparison, compare
from tests.benchmarks.start import BARE, MINIMAL, OURS_TORCHRUN, PROJECT, SPAWN, TORCHRUN

INTERVAL = 0.1  # seconds


def peak(*command: str) -> float:
    """Most MB of a command and its descendants, shared pages divided among those who share them."""
    with subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        most = 0.0
        while process.poll() is None:
            most = max(most, _proportional_set(process.pid))
            time.sleep(INTERVAL)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return most


def measure(rounds: int = 2) -> Comparison:
    """``Comparison.seconds`` are MB here."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "minimal.py"
        script.write_text(MINIMAL)

        def ours(launcher: str) -> float:
            where = tempfile.mkdtemp(dir=folder)
            overrides = ("parallel=ddp", f"launcher={launcher}", "trainer.epochs=1", f"hydra.run.dir={where}")
            return peak(sys.executable, "run.py", *overrides)

        candidates = {
            BARE: lambda: peak(*TORCHRUN, str(script), f"{folder}/stamp", "1000"),
            SPAWN: lambda: ours("spawn"),
            OURS_TORCHRUN: lambda: ours("torchrun"),
        }
        return compare("memory (PSS), 2 ranks and their parents", candidates, rounds=rounds, warm_up=False)


def _proportional_set(pid: int) -> float:
    total = 0
    try:
        for process in [parent := psutil.Process(pid), *parent.children(recursive=True)]:
            total += process.memory_full_info().pss
    except psutil.Error:  # one has just ended
        return 0.0
    return total / 2**20
