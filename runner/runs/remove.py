"""``clean``: say what would go, ask, and remove it."""

import os
import shutil
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from manyheads.runner.run import files
from manyheads.runner.run.ask import is_confirmed
from manyheads.runner.run.data_files import opened_folder
from manyheads.runner.run.errors import ConfigurationError, printable
from manyheads.runner.run.ledger import Ledger
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.runs.clean import Going, Rules, going
from manyheads.runner.runs.listing import show
from manyheads.runner.runs.sizes import readable
from manyheads.runner.runs.summary import summary


def clean(folder: Path, rules: Rules, *, yes: bool) -> int:
    """Return 0 when it is done, or there is nothing to do, 1 when the user said no. Raises ConfigurationError."""
    found, staying = going(folder, rules)
    for sentence in staying:
        print(printable(sentence))
    if not found:
        print("nothing to remove")
        return 0
    show([("frees", "folder", "why"), *((readable(one.size), _name(one), printable(one.why)) for one in found)])
    what = "runs whose checkpoints are removed" if rules.checkpoints else "folders, with everything in them"
    print(f"{readable(sum(one.size for one in found))} in total: {len(found)} {what}")
    if not yes and not is_confirmed("Remove them?"):
        print("nothing was removed")
        return 1
    for one in found:
        try:
            remove(one, top=folder)
        except (ConfigurationError, OSError) as error:
            print(printable(f"{_name(one)} stays: {error}"))
    return 0


def remove(one: Going, *, top: Path) -> None:
    """Remove it while no other process can work on it, and then empty parent folders below ``top``.

    Raises ConfigurationError if a process works on it, or if it has changed since it was examined.
    """
    with ExitStack() as locks:
        if Ledger(one.path).exists():
            locks.enter_context(Ledger(one.path).locked())
        for run in one.runs:
            if run.folder.config.exists():
                locks.enter_context(run.folder.locked())
            status = summary(run.folder).status
            if status not in (run.status, "running") and run.result:  # by then the lock is this process's own
                raise ConfigurationError(f"{run.folder} is now {status}. Run clean again.")
        for path in one.files:
            if path.is_dir():
                files.remove(path)
                continue
            with opened_folder(path) as folder:  # a link in the place of checkpoints/ is not followed
                os.unlink(path.name, dir_fd=folder)
        if not one.files:
            shutil.rmtree(one.path)  # which unlinks links, and follows none
    _remove_empty(one.path.parent, top.resolve())


def _remove_empty(folder: Path, top: Path) -> None:
    folder = folder.resolve()
    with suppress(OSError):  # one of them holds something else
        while folder != top and top in folder.parents:
            folder.rmdir()
            folder = folder.parent


def _name(one: Going) -> str:
    inner = f": {', '.join(path.name for path in _few(one.files))}" if one.files else ""
    return printable(f"{RunFolder(one.path)}{inner}").replace("\n", "\\n")


def _few(files: Sequence[Path]) -> list[Path]:
    return [*files[:3], *([Path("...")] if len(files) > 3 else [])]
