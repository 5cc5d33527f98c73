"""An explanation as a picture: what an update consists of, and what each part of it takes alone."""

import io
from typing import TYPE_CHECKING, Any

from manyheads.runner.commands.explain.limits import LOADER, PASSES, UPDATE, WHAT, milliseconds
from manyheads.runner.report.comparison_picture import STYLE

if TYPE_CHECKING:
    from manyheads.runner.commands.explain.answer import Explanation

# Colours that are told apart by those who see fewer, too; the same for a part of an update and for it alone.
COLORS = {
    "data": "#e69f00",
    "compute": "#0072b2",
    "communication": "#cc79a7",
    "optimizer": "#009e73",
    "logging": "#999999",
}
ALONE = {
    LOADER: COLORS["data"],
    "batch": "#56b4e9",
    PASSES: COLORS["compute"],
    "exchange": COLORS["communication"],
    "optimizer": COLORS["optimizer"],
}


def draw(found: "Explanation", *, form: str) -> bytes:
    """The picture as ``form``, "png" or "svg"."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(9, 1.6 + 0.4 * len(found.seconds)), layout="constrained", facecolor="white")
        FigureCanvasAgg(figure)
        axes = figure.subplots()
        left = 0.0
        for part, seconds in found.spent.items():
            marks: Any = {"left": left, "height": 0.7, "color": COLORS.get(part, "#56646e"), "label": part}
            axes.barh(0, 1000 * seconds, **marks)
            left += 1000 * seconds
        for place, (name, each) in enumerate(found.seconds.items()):
            if name != UPDATE:
                axes.barh(place, 1000 * each.median, height=0.7, color=ALONE[name])
            axes.plot([1000 * each.low, 1000 * each.high], [place, place], color="#222222", linewidth=1.2)
            axes.annotate(
                f" {milliseconds(each.median)}", (1000 * max(each.median, each.high), place), va="center", fontsize=9
            )
        axes.set_yticks(range(len(found.seconds)), [WHAT[name] for name in found.seconds])
        axes.invert_yaxis()
        axes.tick_params(axis="y", length=0)
        axes.set_xlim(0, 1150 * max(each.high for each in found.seconds.values()))
        axes.set_xlabel("ms per update; lines: range over the rounds")
        axes.legend(loc="upper left", bbox_to_anchor=(0, -0.22), ncols=5, fontsize=9, frameon=False)
        figure.suptitle(found.limit.sentence, x=0.01, ha="left", fontsize=11, wrap=True)
        image = io.BytesIO()
        figure.savefig(image, format=form, dpi=120)
    return image.getvalue()
