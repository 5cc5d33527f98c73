"""Run every comparison, print the table, write outputs/benchmarks/<date>.json."""

import json
import platform
import time
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from runner import hardware
from tests.benchmarks import loop, photos, start, sweep


def main() -> None:
    comparisons = [
        loop.measure(),
        loop.with_loader(),
        photos.measure(),
        start.composing(),
        start.running(),
        sweep.measure(),
    ]
    table = Table("what", "candidate", "ratio", "smallest to largest", title="Ratios, the first of each group = 1")
    for comparison in comparisons:
        for name, (median, low, high) in comparison.ratios().items():
            first = name == comparison.baseline
            table.add_row(
                comparison.name if first else "", name, f"{median:.2f}", "" if first else f"{low:.2f} to {high:.2f}"
            )
        table.add_section()
    Console().print(table)
    path = Path("outputs/benchmarks") / f"{time.strftime('%Y-%m-%d_%H-%M-%S')}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    machine = {"cpu": hardware.cpu_model(), "cores": hardware.cpu_cores(), "python": platform.python_version()}
    path.write_text(json.dumps({"machine": machine, "comparisons": [asdict(c) for c in comparisons]}, indent=2))
    Console().print(f"written to {path}")


if __name__ == "__main__":
    main()
