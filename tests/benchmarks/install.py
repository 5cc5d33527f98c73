"""What `make run` installs against `pip install torch torchvision`: ``python -m tests.benchmarks.install [rounds]``.

Each into an empty environment, with empty caches, in turn; downloads some 6 GB a round. Prints seconds and their ratio.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.conftest import ROOT


def seconds(folder: Path, install: list[str]) -> float:
    """How long it takes to create an environment at ``folder`` and to install into it."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_FIND", "UV_", "VIRTUAL"))}
    caches = {"PIP_CONFIG_FILE": os.devnull, "PIP_CACHE_DIR": f"{folder}-pip", "UV_CACHE_DIR": f"{folder}-uv"}
    programs = [place for place in os.environ["PATH"].split(os.pathsep) if not (Path(place) / "uv").exists()]
    start = time.perf_counter()
    for command in ([sys.executable, "-m", "venv", str(folder)], install):
        environment = {**plain, **caches, "PATH": os.pathsep.join(programs)}
        subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main(rounds: int) -> None:
    ratios = []
    for number in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            pip, ours = Path(folder, "pip"), Path(folder, "ours")
            theirs = seconds(pip, [str(pip / "bin" / "pip"), "install", "--quiet", "torch", "torchvision"])
            own = seconds(ours, [".ci/install", str(ours)])
        ratios.append(own / theirs)
        print(f"round {number + 1}: pip install torch torchvision {theirs:.0f} s, .ci/install {own:.0f} s", flush=True)
    print(f"ratio {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
