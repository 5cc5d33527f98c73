"""The command line of a sweep, kept in its folder for as long as it takes the command itself to resume the sweep.

That is until all jobs of a sweep are in its ledger, and for a search always, since it has yet to propose its trials.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from manyheads.runner.run import seal
from manyheads.runner.run.data_files import read_bytes
from manyheads.runner.run.files import write_whole
from manyheads.runner.run.ledger import Ledger

PLANNING, SEARCH = "planning.json", "search.json"


def remember_arguments(sweep: Path, name: str) -> None:
    """Store this process's arguments in the sweep's folder as ``name``, sealed."""
    sweep.mkdir(parents=True, exist_ok=True)
    content = json.dumps({"arguments": sys.argv[1:]}, indent=2) + "\n"
    seal.record(sweep.resolve(), {name: content})
    write_whole(sweep.resolve() / name, content)


def arguments_of(sweep: Path) -> Sequence[str] | None:
    """What restarts a sweep that its jobs alone cannot resume, if it is the user's own; None for all others."""
    sweep = sweep.resolve()
    for name in (SEARCH, PLANNING):
        try:
            parts = {name: read_bytes(sweep / name)}
        except (FileNotFoundError, NotADirectoryError):
            continue
        if (ledger := Ledger(sweep)).exists():
            parts |= ledger.sealed_part()
        if not seal.is_own(sweep, parts):
            return None
        arguments: list[str] = json.loads(parts[name])["arguments"]
        return [*(each for each in arguments if not each.startswith("hydra.sweep.dir=")), f"hydra.sweep.dir={sweep}"]
    return None
