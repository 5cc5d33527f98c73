"""What each of many processes does at once; apart from the tests, whose imports would take them seconds."""

import os
from pathlib import Path

from manyheads.runner.run import seal


def keyed_by(folder: Path) -> str | None:
    """A value by the key of a user whose state is kept in ``folder``."""
    os.environ["XDG_STATE_HOME"] = str(folder)
    return seal.keyed("a test", None)
