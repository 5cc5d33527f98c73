"""The data files that come with scikit-learn, found without importing it, which takes seconds."""

import importlib.util
from pathlib import Path

from manyheads.runner.errors import ConfigurationError


def data_file(name: str, *, option: str) -> Path:
    """The path of one of these files, for the data ``option``. Raises ConfigurationError if it is missing."""
    spec = importlib.util.find_spec("sklearn")
    folder = Path(spec.origin).parent if spec and spec.origin else Path()
    file = folder / "datasets" / "data" / name
    if not spec or not file.is_file():
        raise ConfigurationError.at(
            "data",
            option,
            f": {file} does not exist; it comes with scikit-learn. Install it: pip install scikit-learn.",
        )
    return file
