"""How a warm process that was started before its environment was known is told the variables. See warm_server."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

WAITS_FOR = "MANYHEADS_SETTINGS"  # variable of such a process: the folder in which it finds the others
_VARIABLES, _PIPE = "variables.json", "told"


class WarmSettings:
    """The parent's side: variables in a file, and a pipe in which a byte says that the file is complete."""

    def __init__(self, folder: Path):
        """``folder``: which only this user can enter."""
        self.folder = folder
        os.mkfifo(folder / _PIPE)
        # It stays open: the process notices the parent's end by it, and what is written before it reads would be lost.
        self._pipe = os.open(folder / _PIPE, os.O_RDWR | os.O_CLOEXEC)

    def tell(self, variables: Mapping[str, str]) -> None:
        """Let the process continue with these variables, and no others."""
        (self.folder / _VARIABLES).write_text(json.dumps(dict(variables)))
        os.write(self._pipe, b"\n")


def awaited(folder: Path) -> dict[str, str]:
    """Wait for the variables; ends this process if its parent has ended."""
    with open(folder / _PIPE, "rb", buffering=0) as pipe:
        if not pipe.read(1):
            os._exit(1)
    return json.loads((folder / _VARIABLES).read_text())
