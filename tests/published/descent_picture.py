"""Draws deep double descent as measured here, beside the authors' values; readable on light and dark pages."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from manyheads.runner.charts.colours import OTHERS
from manyheads.runner.charts.picture_file import render
from manyheads.runner.records.run_result import Result
from tests.published.figures import DOUBLE_DESCENT

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OURS, THEIRS = OTHERS[5], OTHERS[4]  # blue, orange
SPLITS = {"val_acc1": ("test", 1), "train_acc1": ("training", 0)}
STYLES = {"val_acc1": "-", "train_acc1": "--"}


def draw(by_width: Mapping[int, Sequence[Result]]) -> bytes:
    """A PNG of errors against width, of the runs and in the notebook."""

    def fill(figure: "Figure") -> None:
        axes = figure.subplots()
        for metric, (split, column) in SPLITS.items():
            published = [errors[column] for errors in DOUBLE_DESCENT.values()]
            axes.plot([*DOUBLE_DESCENT], published, STYLES[metric], color=THEIRS, label=f"{split}, notebook")
            means = [100 - sum(one.metrics[metric] for one in ran) / len(ran) for ran in by_width.values()]
            axes.plot([*by_width], means, STYLES[metric], color=OURS, label=f"{split}, here")
            points = [(width, 100 - one.metrics[metric]) for width, ran in by_width.items() for one in ran]
            axes.plot(*zip(*points, strict=True), "o", color=OURS, markersize=3)
        axes.set_xscale("log")
        ticks = [2, 4, 9, 16, 36, 61, 135, 300]
        axes.set_xticks(ticks, [str(width) for width in ticks])
        axes.minorticks_off()
        axes.set_ylim(0, 75)
        axes.set_xlabel("units per hidden layer")
        axes.set_ylabel("errors, %")
        axes.legend(frameon=False, fontsize=9)

    return render(fill, size=(7, 3.8), form="png")
