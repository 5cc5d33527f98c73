"""``python -m tests.commands.held <module>:<function> <command>``: a real command, which waits where it calls that.

The environment variable HELD names a file that is there from then on.
"""

import os
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from manyheads.runner.app import main


def hold(place: str) -> None:
    """Make the function wait when it is called. ``place``: such as ``shutil:copyfileobj``."""
    module, _, name = place.partition(":")

    def held(*_: Any, **__: Any) -> None:
        Path(os.environ["HELD"]).touch()
        time.sleep(600)

    setattr(import_module(module), name, held)


if __name__ == "__main__":
    hold(sys.argv[1])
    sys.exit(main(sys.argv[2:]))
