"""Compare with hand-written code and other libraries, and write outputs/benchmarks/<date>.json. ``make bench``.

Without arguments what every run costs is measured: the modules of MAIN, in some fifteen minutes.
``python -m tests.benchmarks features training`` measures what is in these modules, and ``all`` everything, curves
included. Each row is printed as soon as it is measured, and Ctrl-C keeps what was.
"""

import json
import os
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import torch
from rich.console import Console

from manyheads.runner.machine import hardware
from tests.benchmarks import checkpoints, growth, photos
from tests.benchmarks.bars import BARS, lines
from tests.benchmarks.curve import Curve
from tests.benchmarks.measure import Comparison

CURVES: tuple[Callable[[], Curve], ...] = (*growth.MEASURES.values(), checkpoints.measure)
MAIN, ALL = ("loop", "ranks", "start", "sweep", "memory", "crowded"), "all"
HEAD = "| what | candidate | against | ratio, smallest to largest | at most |\n|---|---|---|---|---|"


def main() -> None:
    asked = sys.argv[1:] or MAIN
    chosen = [measure for measure in BARS if ALL in asked or measure.__module__.rpartition(".")[2] in asked]
    found: dict[Callable[[], Comparison], Comparison] = {}
    curves: list[Curve] = []
    try:
        print(HEAD, flush=True)
        for measure in chosen:
            found[measure] = measure()
            for line in lines(found[measure], BARS[measure]):
                print(line, flush=True)
        if {photos.measure, photos.all_cores} <= found.keys():
            curves.append(photos.curve(found[photos.measure], found[photos.all_cores]))
            Console().print(curves[-1].table())
        for each in CURVES if ALL in asked else ():
            curves.append(each())
            Console().print(curves[-1].table())
    except KeyboardInterrupt:
        print("interrupted: the rows above were measured", file=sys.stderr)
    finally:
        _write(list(found.values()), curves)


def _write(comparisons: list[Comparison], curves: list[Curve]) -> None:
    path = Path("outputs/benchmarks") / f"{time.strftime('%Y-%m-%d_%H-%M-%S')}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "machine": machine(),
        "comparisons": [asdict(comparison) for comparison in comparisons],
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
