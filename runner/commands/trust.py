"""``python -m runner trust``: make a project, or somebody else's run, one's own, after showing what it could run."""

import argparse
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from manyheads.runner.provenance.kept_files import take_over_copies
from manyheads.runner.run.ask import is_confirmed
from manyheads.runner.run.data_files import MOST_TABLE_BYTES, read_bytes, read_json
from manyheads.runner.run.errors import ConfigurationError, printable
from manyheads.runner.run.folder import Folder
from manyheads.runner.run.ledger import Ledger
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.run.seal import unsealed
from manyheads.runner.trust.check import own_values, untrusted
from manyheads.runner.trust.config_files import read_config_file
from manyheads.runner.trust.own import Trust, own_project, trust_project, trust_run

HELP = "trust a folder of configs, or somebody else's run or sweep, after showing what it could run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("folder", help="a project, such as . , or the folder of configs, a run or a sweep")
    parser.add_argument("--yes", action="store_true", help="do not ask")


def run(arguments: argparse.Namespace) -> int:
    """Return 0 when the folder is the user's own now, 1 when he said no. Raises ConfigurationError."""
    folder = Path(arguments.folder)
    if not folder.is_dir():
        raise ConfigurationError(f"{folder} is not a folder. Name that of a project, of a run or of a sweep.")
    runs = _runs(folder)
    for line in _of_runs(runs) if runs else _of_configs(own_project(folder)):
        print(printable(line))
    if not arguments.yes and not is_confirmed("Trust it as your own?"):
        print("nothing has changed")
        return 1
    try:
        for each in runs:
            trust_run(each, *_code(each))
            if each.config.exists():
                take_over_copies(each, each.read_config())
        if not runs:
            trust_project(folder)
    except OSError as error:
        raise ConfigurationError(f"the list of what you trust cannot be written: {error}.") from None
    print(f"{printable(folder if runs else own_project(folder))} is now trusted as your own")
    return 0


def _runs(folder: Path) -> list[RunFolder]:
    """The run, or the jobs of the sweep, that the folder holds; none for a project. Raises ConfigurationError."""
    if Ledger(folder).exists():
        found = [RunFolder(folder / entry.folder) for entry in Ledger(folder).entries()]
    else:
        found = [RunFolder(folder)]
    found = [each for each in found if each.holds_run() and each.path.is_relative_to(folder.resolve())]
    if found:
        with Folder(folder.resolve()) as held:
            held.refuse_links()
    return found


def _of_runs(runs: list[RunFolder]) -> Iterator[str]:
    for each in runs:
        config = each.read_config() if each.config.exists() else _content(each.composed)
        yield f"{each}: {_listed(untrusted(config, Trust()))}"
        for copy in sorted(each.code.rglob("*.py")):
            yield f"  reproduce would run {copy}, which differs here from the file that it was copied from"
        commit, diff = _code(each)
        if diff:
            files = [line[6:].decode(errors="replace") for line in diff.splitlines() if line.startswith(b"+++ b/")]
            yield f"  reproduce --code would apply {each.code_diff}, which changes {', '.join(files)}"
        if commit:
            yield f"  reproduce --code would run commit {commit}"


def _of_configs(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*.yaml")):
        content = _content(path)
        found = list(own_values(content)) + [(key, "...") for key in content if key == "hydra"]
        if found:
            yield f"{path}: {_listed(found)}"
    yield f"every config in {folder} may run any code and change Hydra's own settings"


def _content(path: Path) -> dict[str, Any]:
    content = read_config_file(path).content
    return content if isinstance(content, dict) else {}


def _listed(found: list[tuple[str, Any]]) -> str:
    return ", ".join(f"{key}={value}" for key, value in found) or "names only this project's own code"


def _code(folder: RunFolder) -> tuple[object, bytes]:
    """The commit and the changes that the run was recorded with."""
    commit, diff = None, b""
    with suppress(FileNotFoundError):
        commit = read_json(folder.provenance).get("commit")
    with suppress(FileNotFoundError):
        diff = unsealed(read_bytes(folder.code_diff, most=MOST_TABLE_BYTES))
    return commit, diff
