"""Pictures that commands draw without a browser, and the file that ``--picture`` names."""

import io
from collections.abc import Callable
from dataclasses import dataclass
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


@dataclass(frozen=True)
class PictureFile:
    """The file that ``--picture`` names."""

    path: Path

    @classmethod
    def named(cls, name: str) -> "PictureFile":
        """The file of this name. Raises ConfigurationError if the name does not end in one of ``FORMS``."""
        if Path(name).suffix not in FORMS:
            raise ConfigurationError.at("--picture", name, f": its name must end in {' or '.join(FORMS)}.")
        return cls(Path(name))

    @property
    def form(self) -> str:
        """The format of the picture: "png" or "svg"."""
        return self.path.suffix.removeprefix(".")

    def write(self, image: bytes) -> None:
        """Write it completely, or not at all. Raises ConfigurationError."""
        try:
            with whole_file(self.path.parent.resolve() / self.path.name) as file:
                file.write(image)
        except OSError as error:
            raise ConfigurationError.at("--picture", self.path, f" can't be written: {error.strerror}.") from None
