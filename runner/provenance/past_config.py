"""Configs that were recorded, by anyone, and may run here: unchanged, or with changes, composed again."""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from manyheads.runner.config import saved
from manyheads.runner.config.command_line import CommandLine
from manyheads.runner.config.freeze import checked
from manyheads.runner.config.fresh_folder import RUN_DIR
from manyheads.runner.config.typed_files import offer_files
from manyheads.runner.config.typed_packages import split_typed
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.declared import GROUPS
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.option.tree import Section
from manyheads.runner.provenance.copies import copies, import_copies, overrides_of
from manyheads.runner.provenance.kept_files import changed_files, kept
from manyheads.runner.provenance.provenance import signature
from manyheads.runner.provenance.started_in import find_where_started
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.trust.admit import admit_declarations, admit_run, door, trusting
from manyheads.runner.trust.check_trust import refuse_content
from manyheads.runner.trust.trust_store import Trust


@dataclass(frozen=True)
class PastConfig:
    """A past run and the changes to its config that were typed.

    ``config``: as it was recorded; ``packages``: those that the user typed as trusted; ``line``: the changes, without
    the folder of the new run; ``files``: keys with the files that the user typed for them; ``replaced``: overrides that
    use the run's copies of files that have changed since.
    """

    folder: RunFolder
    config: Section
    packages: list[str]
    line: CommandLine
    files: tuple[tuple[str, Any], ...]
    replaced: list[str]

    @classmethod
    def admitted(cls, folder: RunFolder, overrides: Sequence[str]) -> "PastConfig":
        """The config of a run that may be loaded here.

        Raises ConfigurationError if it is not a run, or not trusted, and as ``of``.
        """
        return cls.of(folder, admit_run(folder, *split_typed(overrides)), overrides)

    @classmethod
    def of(cls, folder: RunFolder, config: Section, overrides: Sequence[str]) -> "PastConfig":
        """The config of a run, which was already read; modules are also imported from where the run was started.

        Raises ConfigurationError for overrides that are wrong, and for copies that are missing or not the user's.
        """
        packages, typed = split_typed(overrides)
        line, files = offer_files(
            CommandLine(tuple(override for override in typed if not override.startswith(RUN_DIR)))
        )
        find_where_started(folder)
        return cls(folder, config, packages, line, files, overrides_of(copies(folder, config, chosen=line.chosen)))

    def trust(self, *first: str) -> Trust | None:
        """The user's trust in the config with the overrides ``first``; None for an own run."""
        if self.folder.is_own():
            return None
        typed = [*first, *self.line.overrides]
        return trusting(typed, self.packages, self.files, folder=self.folder.path)

    def checked(self, *first: str) -> RunConfig:
        """The config with the overrides ``first``, over which those that were typed win; checked for this machine.

        Raises what Hydra raises, and ConfigurationError as ``saved.composed`` and ``freeze.checked`` do.
        """
        plain = [*self.folder.kept_threads(), *first, *self.replaced, *self.line.overrides]
        composed, folders = saved.composed(self.config, plain, chosen=self.line.chosen)
        return checked(composed, admit=door(self.trust(*first)), folders=folders)


def admitted(folder: RunFolder, packages: Iterable[str] = ()) -> RunConfig:
    """The config of a run that may be loaded or resumed here. Raises as ``admit_run``."""
    return RunConfig.of(admit_run(folder, packages))


def resumed(folder: RunFolder, packages: Iterable[str] = (), *, as_recorded: bool = False) -> Section:
    """The config of a run that is resumed in its own folder, from now on by the code that it was started with.

    Prints which of its files have changed since; ``as_recorded``: their copies are used. Raises as ``admit_run`` and
    ``import_copies``.
    """
    config = admit_run(folder, packages)
    find_where_started(folder)
    import_copies(folder, edited=as_recorded)
    for file in changed_files(folder, config).values():
        if file.in_use() == file.path:
            copy = kept(folder, file.path)
            print(f"{file.path} has changed since this run was started; its copy is {copy}", file=sys.stderr)
    return config


def sent(config: Section, path: Path, overrides: Sequence[str], *, is_own: bool) -> RunConfig:
    """A complete config that a file at ``path`` holds, with overrides. ``is_own``: whether the user recorded it.

    Raises ConfigurationError if it is incomplete, wrong or not trusted.
    """
    if (missing := saved.missing_section(config)) is not None:
        raise ConfigurationError(f"{path} holds a config without {missing}.")
    packages, typed = split_typed(overrides)
    line, files = offer_files(CommandLine(tuple(typed)))
    trust = None if is_own else trusting(line.overrides, packages, files)
    if not is_own:
        refuse_content(path, config)
    composed, folders = saved.composed(config, line.overrides, chosen=line.chosen)
    return checked(composed, admit=door(trust), folders=folders)


def recorded_signature(config: Section, folder: RunFolder | None = None) -> str:
    """The signature of a run config that anyone may have recorded. ``folder``: of its run; None if it has none.

    Raises ConfigurationError for option classes that are not trusted, since computing it imports them.
    """
    if folder is None or not folder.is_own():
        admit_declarations(config, None if folder is None else folder.path)
    if missing := [group for group in GROUPS if not isinstance(config.get(group), dict)]:
        raise ConfigurationError(f"it holds a config without {missing[0]}.")
    return signature(config)
