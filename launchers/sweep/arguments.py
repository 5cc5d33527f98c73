"""The command line of a sweep, kept in its folder for as long as it takes the command itself to resume the sweep.

That is until all jobs of a sweep are in its ledger, and for a search always, since it has yet to propose its trials.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from manyheads.runner.run.data_files import read_bytes
from manyheads.runner.run.files import write_whole
from manyheads.runner.run.seal import is_own, sealed, unsealed

PLANNING, SEARCH = "planning.json", "search.json"


def remember_arguments(sweep: Path, name: str) -> None:
    """Store this process's arguments in the sweep's folder as ``name``, sealed."""
    sweep.mkdir(parents=True, exist_ok=True)
    content = json.dumps({"arguments": sys.argv[1:]}, indent=2).encode()
    write_whole(sweep / name, sealed(content, name=name))


def arguments_of(sweep: Path) -> Sequence[str] | None:
    """What restarts a sweep of the user's own that its jobs alone cannot resume; None for all others."""
    for name in (SEARCH, PLANNING):
        try:
            content = read_bytes(sweep / name)
        except (FileNotFoundError, NotADirectoryError):
            continue
        if not is_own(content, name=name):
            return None
        arguments: list[str] = json.loads(unsealed(content))["arguments"]
        folder = f"hydra.sweep.dir={sweep.resolve()}"
        return [*(each for each in arguments if not each.startswith("hydra.sweep.dir=")), folder]
    return None
