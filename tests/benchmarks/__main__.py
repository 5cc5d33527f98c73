"""Run every comparison, print the table, write outputs/benchmarks/<date>.json. ``make bench``.

``python -m tests.benchmarks features training`` runs those of these modules alone.
"""

import json
import os
import platform
import sys
import time
from dataclasses import asdict
from pathlib import Path

import torch
from rich.console import Console

from manyheads.runner.machine import hardware
from tests.benchmarks import checkpoints, growth, photos
from tests.benchmarks.bars import BARS, lines

HEAD = "| what | candidate | against | ratio, smallest to largest | at most |\n|---|---|---|---|---|"


def main() -> None:
    found = {}
    only = sys.argv[1:]
    for measure in BARS:
        if only and measure.__module__.rpartition(".")[2] not in only:
            continue
        print(f"{measure.__module__}.{measure.__name__} ...", file=sys.stderr, flush=True)
        found[measure] = measure()
    print(HEAD)
    for measure, comparison in found.items():
        for line in lines(comparison, BARS[measure]):
            print(line)
    curves = (
        []
        if only
        else [*photos.curves(found[photos.measure], found[photos.all_cores]), *growth.curves(), checkpoints.measure()]
    )
    for curve in curves:
        Console().print(curve.table())
    path = Path("outputs/benchmarks") / f"{time.strftime('%Y-%m-%d_%H-%M-%S')}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "machine": machine(),
        "comparisons": [asdict(comparison) for comparison in found.values()],
        "curves": [asdict(curve) for curve in curves],
    }
    path.write_text(json.dumps(content, indent=2) + "\n")
    print(f"written to {path}")


def machine() -> dict[str, object]:
    """What the numbers were measured on, and how busy it was with other things."""
    return {
        "cpu": hardware.cpu_model(),
        "cores": hardware.cpu_cores(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "load": os.getloadavg(),
    }


if __name__ == "__main__":
    main()
