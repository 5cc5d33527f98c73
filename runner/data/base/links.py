"""Links in a folder of data, which may be one that somebody sent: they lead nowhere else, unless the user says so."""

import os
from pathlib import Path

from manyheads.runner.run import called
from manyheads.runner.run.errors import ConfigurationError, printable
from manyheads.runner.run.seal import is_taken_over


def refuse_leaving(root: Path, path: str | Path) -> None:
    """Raises ConfigurationError for a file that is outside ``root`` once links are followed, or a link to nothing.

    Of a folder that the user has marked as his own, nothing is refused.
    """
    inside = root.resolve()
    found = Path(os.path.realpath(path))
    if found.is_relative_to(inside) or any(_is_own(each) for each in (inside, *inside.parents)):
        return
    raise ConfigurationError(
        f"data.root={printable(root)}: {printable(path)} points outside this folder, which may have been sent to you, "
        f"so it is not read. If it is yours, run once: {called.command('trust', root)}"
    )


def _is_own(folder: Path) -> bool:
    return is_taken_over("project", str(folder).encode(errors="surrogateescape"))
