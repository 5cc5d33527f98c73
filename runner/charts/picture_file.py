"""Pictures that commands draw without a browser, and the file that ``--picture`` names."""

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.files import whole_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMS = (".png", ".svg")
STYLE: Any = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.edgecolor": "#8a949c",
    "text.parse_math": False,  # labels are the user's
}


def render(fill: "Callable[[Figure], None]", *, size: tuple[float, float], form: str) -> bytes:
    """A picture as ``form``, "png" or "svg". ``fill``: draws into the empty figure; ``size``: in inches."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=size, layout="constrained", facecolor="white")
        FigureCanvasAgg(figure)
        fill(figure)
        image = io.BytesIO()
        figure.savefig(image, format=form, dpi=120)
    return image.getvalue()


def form_of(picture: str) -> str:
    """The format of the file that ``--picture`` names. Raises ConfigurationError if its name does not end in one."""
    if (suffix := Path(picture).suffix) not in FORMS:
        raise ConfigurationError.at("--picture", picture, f": its name must end in {' or '.join(FORMS)}.")
    return suffix[1:]


def write_picture(picture: str, image: bytes) -> None:
    """Write the file completely, or not at all, and say so on stderr. Raises ConfigurationError."""
    path = Path(picture)
    try:
        with whole_file(path.parent.resolve() / path.name) as file:
            file.write(image)
    except OSError as error:
        raise ConfigurationError.at("--picture", path, f" can't be written: {error.strerror}.") from None
    print(f"wrote {path}", file=sys.stderr)
