"""Rows of docs/published.md, from runs: ``python -m tests.published FOLDER... [--picture docs/double-descent.png]``."""

import argparse
from collections import defaultdict
from pathlib import Path
from typing import Any

from manyheads.runner.records.run_result import Result
from manyheads.runner.run.run_folder import RunFolder
from tests.published.descent_picture import draw
from tests.published.figures import DOUBLE_DESCENT, TABLE, Measured, results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--picture", type=Path, help="draw double descent into this PNG")
    given = parser.parse_args()
    by_case: dict[Any, list[Result]] = defaultdict(list)
    for result in results(given.folders):
        by_case[case(result)].append(result)
    for name, published in TABLE.items():
        if name in by_case:
            print(row(name, [one.metrics["val_acc1"] for one in by_case[name]], *published), seconds(by_case[name]))
    widths = {width: by_case[width] for width in DOUBLE_DESCENT if width in by_case}
    for width, ran in widths.items():
        training, test = DOUBLE_DESCENT[width]
        print(row(width, [100 - one.metrics["train_acc1"] for one in ran], training), "training error")
        print(row(width, [100 - one.metrics["val_acc1"] for one in ran], test), "test error", seconds(ran))
    if given.picture:
        given.picture.write_bytes(draw(widths))


def case(result: Result) -> Any:
    """What a run measured: a row of the table, or a width."""
    config = RunFolder(result.folder).read_config()
    model, data = config["model"], config["data"]
    if model["name"] == "mlp":
        return model["width"]
    return model.get("kind"), "shuffled" if data["shuffle_positions"] else "in order"


def row(name: object, values: list[float], *published: float) -> str:
    """A line with the mean, its interval, and each published value with its verdict."""
    measured = Measured.of(values)
    verdicts = ", ".join(f"{value} {measured.verdict(value)}" for value in published)
    return f"{name}: {measured.runs} seeds, {measured.mean:.2f} ± {measured.half:.2f}; {verdicts}"


def seconds(ran: list[Result]) -> str:
    """The shortest and the longest training."""
    times = sorted(one.train_seconds for one in ran)
    return f"({times[0]:.0f} to {times[-1]:.0f} s)"


if __name__ == "__main__":
    main()
