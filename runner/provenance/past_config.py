"""The config of a past run with changes, composed again: for commands that evaluate, explain or repeat the run."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from omegaconf import DictConfig

from manyheads.runner.config import saved
from manyheads.runner.config.command_line import CommandLine
from manyheads.runner.config.fresh_folder import RUN_DIR
from manyheads.runner.config.lookup import Folders
from manyheads.runner.config.typed_files import offer_files
from manyheads.runner.config.typed_packages import split_typed
from manyheads.runner.option.locate import Section
from manyheads.runner.provenance.copies import copies, overrides_of
from manyheads.runner.provenance.started_in import find_where_started
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.trust.authorize import refuse_untrusted_run, typed_values
from manyheads.runner.trust.trust_store import Trust, trusted_packages


class Recomposed(NamedTuple):
    """Arguments of ``freeze`` and ``checked``: the composed config, and the folders that were searched for options.

    ``trust``: what the user trusts of it; None for a run of the user's own.
    """

    config: DictConfig
    folders: Folders
    trust: Trust | None


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
    def authorized(cls, path: str, overrides: Sequence[str]) -> "PastConfig":
        """The config of a run that may be loaded here. Raises ConfigurationError if it is not a run, or not trusted."""
        folder = RunFolder(path)
        folder.pin_config()  # fails if there is no run
        config = folder.read_config()
        packages, typed = split_typed(overrides)
        refuse_untrusted_run(folder, packages, [key for key, _ in typed_values(typed)])
        return cls.of(folder, config, overrides)

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
        typed = (*self.files, *typed_values([*first, *self.line.overrides]))
        return Trust(trusted_packages(self.packages), typed, self.folder.path)

    def composed(self, *first: str) -> Recomposed:
        """The config with the overrides ``first``, over which those that were typed win.

        Raises what Hydra raises, and ConfigurationError as ``saved.composed`` does.
        """
        plain = [*first, *self.replaced, *self.line.overrides]
        config, folders = saved.composed(self.config, plain, chosen=self.line.chosen)
        return Recomposed(config, folders, self.trust(*first))
