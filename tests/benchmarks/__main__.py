"""Compare with hand-written code and other libraries, and write outputs/benchmarks/<date>.json. ``make bench``.

Without arguments what every run costs is measured: the modules of MAIN, in some twelve minutes on two idle cores.
``python -m tests.benchmarks features training`` measures what is in these modules, and ``all`` everything, curves
included. Rows are shown as soon as they are measured, and Ctrl-C keeps what was. What runs and other programs print,
such as torchrun's warnings, is in <date>.log.
"""

import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TextIO

import torch
from rich.console import Console

from manyheads.runner.machine import hardware
from tests.benchmarks import checkpoints, growth, photos
from tests.benchmarks.bars import BARS, HEAD, lines
from tests.benchmarks.curve import Curve
from tests.benchmarks.measure import Comparison

CURVES: tuple[Callable[[], Curve], ...] = (*growth.MEASURES.values(), checkpoints.measure)
MAIN, ALL = ("loop", "ranks", "sharing", "start", "sweep", "memory", "crowded"), "all"
FOLDER = Path("outputs/benchmarks")
Measure = Callable[[], Comparison]


def main() -> None:
    asked = sys.argv[1:] or MAIN
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # commands find modules compiled, as from a user's second one on
    chosen = [measure for measure in BARS if ALL in asked or _module(measure) in asked]
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / time.strftime("%Y-%m-%d_%H-%M-%S")
    compared: dict[Measure, Comparison] = {}
    took: list[float] = []
    curves: list[Curve] = []
    try:
        with aside(path.with_suffix(".log")) as shown:
            print(HEAD, end="", file=shown)
            for comparison, seconds in measured(chosen, compared, shown):
                took.append(seconds)
                print(
                    f"{comparison.name} ({seconds:.0f} s)",
                    *lines(comparison, BARS[[*compared][-1]]),
                    sep="\n",
                    file=shown,
                )
            if {photos.measure, photos.all_cores} <= compared.keys():
                curves.append(photos.curve(compared[photos.measure], compared[photos.all_cores]))
                Console(file=shown).print(curves[-1].table())
            for curve in CURVES if ALL in asked else ():
                curves.append(curve())
                Console(file=shown).print(curves[-1].table())
    except KeyboardInterrupt:
        print("interrupted: the rows above were measured", file=sys.stderr)
    finally:
        _write(path.with_suffix(".json"), [*compared.values()], took, curves)
        above = [
            line for measure in compared for line in lines(compared[measure], BARS[measure]) if line.startswith("*")
        ]
        print(f"{len(above)} rows above their limit; {sum(took) / 60:.0f} minutes; {path}.json, {path}.log")


def measured(
    chosen: list[Measure], compared: dict[Measure, Comparison], shown: TextIO
) -> Iterator[tuple[Comparison, float]]:
    """Each comparison, which is added to ``compared``, with the seconds that it took; a terminal shows what is next."""
    began = time.monotonic()
    for number, measure in enumerate(chosen, 1):
        start, clears = time.monotonic(), "\r\033[K" if shown.isatty() else ""
        if clears:
            label = f"{_module(measure)}, {measure.__name__}"
            print(f"{number} of {len(chosen)}: {label}; {start - began:.0f} s so far", end="", file=shown, flush=True)
        compared[measure] = measure()
        print(clears, end="", file=shown)
        yield compared[measure], time.monotonic() - start


@contextmanager
def aside(path: Path) -> Iterator[TextIO]:
    """A context in which this process and its children print into a file; yields what was stdout before."""
    kept = {number: os.dup(number) for number in (1, 2)}
    with path.open("wb") as log, open(os.dup(1), "w", buffering=1) as shown:
        try:
            for number in kept:
                os.dup2(log.fileno(), number)
            yield shown
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for number, before in kept.items():
                os.dup2(before, number)
                os.close(before)


def _module(measure: Measure) -> str:
    return measure.__module__.rpartition(".")[2]


def _write(path: Path, comparisons: list[Comparison], took: list[float], curves: list[Curve]) -> None:
    rows = zip(comparisons, took, strict=False)
    content = {
        "machine": machine(),
        "comparisons": [{**asdict(comparison), "took": seconds} for comparison, seconds in rows],
        "curves": [asdict(curve) for curve in curves],
    }
    path.write_text(json.dumps(content, indent=2) + "\n")


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
