"""Links in a folder of data, which may be one that somebody sent: they lead nowhere else, unless the user says so."""

import os
from pathlib import Path

from manyheads.runner.errors import ConfigurationError, printable
from manyheads.runner.machine import invocation
from manyheads.runner.run.seal import is_own_place


def refuse_leaving(root: Path, path: str | Path) -> None:
    """Raises ConfigurationError for a file that is outside ``root`` once links are followed, or a link to nothing.

    Of a folder that the user has marked as his own, nothing is refused.
    """
    inside = root.resolve()
    found = Path(os.path.realpath(path))
    if found.is_relative_to(inside) or is_own_place(inside):
        return
    raise ConfigurationError(
        f"data.root={printable(root)}: {printable(path)} points outside this folder, which may have been sent to you, "
        f"so it is not read. If it is yours, run once: {invocation.command('trust', root)}"
    )
