"""The code that runs: the project's commit and the changes to it, and how to restore a recorded one."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine.invocation import IS_CHECKOUT, ROOT
from manyheads.runner.provenance.git import GIT, asked, git
from manyheads.runner.run import scratch
from manyheads.runner.run.program import Program

CODE = ("*.py", "conf/")  # untracked files to record: others may be secret or large


@cache
def code_at_start() -> tuple[str | None, bytes]:
    """``code_state`` at the first run that this process starts, which warm ranks of later runs execute too."""
    return code_state()


def code_state() -> tuple[str | None, bytes]:
    """The project's commit and the diff from it, including untracked code files.

    (None, b"") without git, and if git fails, since changes that it does not name would count as none.
    """
    commit = _git("rev-parse", "HEAD").decode().strip() or None
    index = _git("rev-parse", "--git-path", "index").decode().strip()
    if commit is None or not index:
        return None, b""
    if not (ROOT / index).exists():
        return commit, b""
    with scratch.folder() as folder:  # whose copy of the index leaves the user's unchanged
        # The copy keeps its time, which tells git which files to read.
        variables = {"GIT_INDEX_FILE": shutil.copy2(ROOT / index, str(folder))}
        output = asked(ROOT, "ls-files", "--others", "--exclude-standard", "-z", "--", *CODE)
        if new := [os.fsdecode(path) for path in (output or b"").split(b"\0") if path]:
            output = asked(ROOT, "--literal-pathspecs", "add", "--intent-to-add", "--", *new, variables=variables)
        diff = asked(ROOT, "diff", "--binary", "HEAD", variables=variables)
    return (None, b"") if output is None or diff is None else (commit, diff)


def _git(*arguments: str) -> bytes:
    if not IS_CHECKOUT:  # installed, perhaps inside the user's own repository
        return b""
    return git(ROOT, *arguments)


def is_known(commit: str) -> bool:
    """Whether the project's repository contains the commit, from any source."""
    return bool(_git("cat-file", "-t", commit))


@contextmanager
def checkout(commit: str, diff: bytes) -> Iterator[Path]:
    """A context with the project at ``commit`` plus ``diff``, in a separate folder. Raises ConfigurationError."""
    if not is_known(commit):
        raise ConfigurationError(f"the recorded commit {commit} is not in {ROOT}. Fetch it: git fetch --all.")
    with scratch.folder() as folder:
        tree = folder / "code"
        try:
            _git("worktree", "add", "--detach", str(tree), commit)
            applied = Program([*GIT, "apply", "-"], folder=tree).ask(given=diff)
            if diff and applied.code:
                reason = applied.errors.strip().splitlines()[-1]
                raise ConfigurationError(f"the recorded changes don't fit commit {commit}: {reason}.")
            yield tree
        finally:
            _git("worktree", "remove", "--force", str(tree))
