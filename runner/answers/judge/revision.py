"""A revision of the user's own repository: base runs its code, while the change runs the working tree.

Only ranks import its files.
"""

import os
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from manyheads.runner.answers.judge.committed_files import named_commit, write_commit
from manyheads.runner.answers.judge.rank.at_revision import AtRevision, CodeTask
from manyheads.runner.answers.measure.rows import BASE
from manyheads.runner.answers.measure.runs import ArmCode
from manyheads.runner.config.project import conf_of
from manyheads.runner.errors import ConfigurationError, printable
from manyheads.runner.option.source_file import source_file
from manyheads.runner.option.tree import Section, files_named, packages_named
from manyheads.runner.provenance.git import REGULAR, blobs, edited, entries, git
from manyheads.runner.run import scratch
from manyheads.runner.run.run_folder import RunFolder

AT_REVISION = "manyheads.runner.answers.judge.rank.at_revision"


@dataclass(frozen=True)
class Revision:
    """A commit. ``project``: the repository's folder; ``commit``: the full hash."""

    project: Path
    commit: str

    @classmethod
    def named(cls, name: str) -> "Revision":
        """A revision of the repository around the working directory. Raises ConfigurationError if it does not exist."""
        return cls(*named_commit(name))

    def changed_files(self) -> list[str]:
        """The files of the revision that differ in the working tree, and those that only the working tree has.

        Of the latter, only files that git tracks, and Python files that it does not ignore: others may be data. Copies
        of code in run folders are not counted. Raises ConfigurationError if no file differs, or if one of the project's
        own configs does, since both arms have the same config.
        """
        committed = blobs(self.project, self.commit)
        changed = sorted(str(name) for name in (*edited(self.project, committed), *self._added({*committed})))
        if not changed:
            raise ConfigurationError(
                f"--code: no file differs from {self.commit[:10]}, so there is nothing to judge.", key="--code"
            )
        conf = conf_of(Path.cwd())
        for name in changed:
            if conf is not None and (self.project / name).is_relative_to(conf.resolve()):
                raise ConfigurationError(
                    f"--code: {printable(name)} differs too, and both arms get the configs of the working tree. "
                    "Restore it, or name the difference with --change instead.",
                    key="--code",
                )
        return changed

    def _added(self, committed: Set[PurePosixPath]) -> set[PurePosixPath]:
        tracked = git(self.project, "ls-files", "-z")
        others = git(self.project, "ls-files", "--others", "--exclude-standard", "-z", "--", "*.py")
        names = {PurePosixPath(os.fsdecode(name)) for name in (tracked + others).split(b"\0") if name}
        return {
            name
            for name in names - committed
            if (self.project / name).is_file()
            and not any(RunFolder(self.project / folder).config.is_file() for folder in name.parents)
        }

    @contextmanager
    def files(self) -> Iterator["BaseCode"]:
        """A context in which the files of this revision exist in a temporary folder.

        Raises ConfigurationError if a file is missing in the repository or cannot be written.
        """
        with scratch.folder() as folder:
            files = entries(self.project, self.commit).items()
            regular = {name: entry for name, entry in files if entry.mode in REGULAR}
            write_commit(self.project, self.commit, regular, folder / "code")
            yield BaseCode(self.project, self.commit, folder / "code")


@dataclass(frozen=True)
class BaseCode(ArmCode):
    """The files of a revision, which base runs, while the change runs the working tree.

    ``project``: the repository's folder; ``tree``: the temporary folder with the files.
    """

    project: Path
    commit: str
    tree: Path

    def config(self, config: Section, arm: str) -> Section:
        return self.redirected(config) if arm == BASE else config

    def rank(self, config: Section, arm: str, rank: str) -> tuple[str, dict[str, str]]:
        folders = self.folders(config) if arm == BASE else []
        return AT_REVISION, CodeTask(rank, str(self.project), folders).variables()

    def digest(self, provenance: Mapping[str, Any], arm: str) -> str:
        return self.commit if arm == BASE else super().digest(provenance, arm)

    def redirected(self, config: Any) -> Any:
        """A run config in which the paths of the repository's Python files lead to those of the revision."""
        if isinstance(config, Mapping):
            return {key: self.redirected(value) for key, value in config.items()}
        if isinstance(config, list):
            return [self.redirected(value) for value in config]
        file = source_file(config)
        if file is None or not (path := file.path.resolve()).is_relative_to(self.project):
            return config
        return f"{self.tree / path.relative_to(self.project)}:{file.name}"

    def folders(self, config: Section) -> list[str]:
        """The folders in which base's ranks look for the user's packages first.

        Empty if ``config`` names no code of the repository: then the repository may have been sent by somebody, and
        modules that torch merely tries to import would be found there. manyheads itself is never imported from them: in
        its own checkout, both arms run the code that judges.
        """
        here = Path.cwd().resolve()
        within = here.relative_to(self.project) if here.is_relative_to(self.project) else Path()
        folders = [*dict.fromkeys(str(self.tree / part) for part in (within, "", "src"))]
        finder = AtRevision(folders, str(self.project))
        is_named = any(file.path.is_relative_to(self.tree) for file in files_named(config).values()) or any(
            finder.find_spec(package) for package in packages_named(config)
        )
        return folders if is_named else []
