"""The origin of a command's runs, besides their config; passed to every job, in any process."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial, update_wrapper
from typing import Any

from omegaconf import DictConfig

from manyheads.runner.config import saved
from manyheads.runner.config.command_line import CommandLine
from manyheads.runner.config.lookup import CONF
from manyheads.runner.config.own_folders import with_own_folders
from manyheads.runner.config.typed_files import offer_files, refuse_replaced
from manyheads.runner.config.typed_packages import split_typed
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.tree import Section
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.trust.admit import admit_line, admit_run
from manyheads.runner.trust.check_trust import complaint, refuse_untrusted, untrusted
from manyheads.runner.trust.trust_store import Trust, trusted_packages

NO_RERUN = (
    "--experimental-rerun unpickles its file, which can run any code. Repeat a run from its folder: "
    "--config-path <run> --config-name run."
)


@dataclass(frozen=True)
class Origin:
    """The origin of runs. ``trust``: what the user trusts of the configs, None for the user's own.

    ``packages``: those that the user typed as trusted; ``typed``: keys and values that naming files as options set.

    ``composed_from``: the saved config, if any. ``answers``: of the run, or of the sweep, that this process has
    started, the first one's; each returns None if there is none. ``ends``: what ``end`` calls. Only
    these two change.
    """

    trust: Trust | None = None
    composed_from: str | None = None
    packages: tuple[str, ...] = ()
    typed: tuple[tuple[str, str], ...] = ()
    answers: list[Callable[[], Any]] = field(default_factory=list, compare=False)
    ends: list[Callable[[], None]] = field(default_factory=list, compare=False)

    def answer(self) -> Any:
        """The answer about the run or sweep that was started; None if there was none."""
        return self.answers[0]() if self.answers else None

    def end(self) -> None:
        """Set the command's exit code, once Hydra has done everything. Raises Ended, for a sweep whose jobs failed."""
        for end in self.ends:
            end()

    def admit(self, config: Section | DictConfig) -> None:
        """Raises ConfigurationError for a config, composed or as it will run, that the user does not trust.

        Likewise for one as it will run in which another class replaces a file that the user named.
        """
        refuse_untrusted(config, self.trust)
        if not isinstance(config, DictConfig):
            refuse_replaced(config, self.typed)

    def admitted(self, folder: RunFolder) -> Section:
        """The config of a job that was frozen before, and has been on disk since. Raises as ``admit_run``."""
        return admit_run(folder, () if self.trust is None else self.trust.packages)

    def why_not(self, config: Section) -> str | None:
        """Why parts of a config may not be imported; None if they may."""
        refused = [] if self.trust is None else untrusted(config, self.trust)
        return complaint(refused).rstrip(".") if refused else None

    @cached_property
    def trusts(self) -> Callable[[str], bool]:
        """Whether the user trusts a name explicitly, as is needed for what nobody chose."""
        return Trust(trusted_packages(self.packages)).covers

    def bind(self, task: Callable[..., Any], **others: Any) -> Callable[..., Any]:
        """The task function with this as its argument ``origin``, and others, since Hydra passes only the config."""
        return update_wrapper(
            partial(task, origin=self, **others), task
        )  # Hydra looks for the file that defines the task

    @staticmethod
    def of(task: Callable[..., Any]) -> "Origin":
        """The origin that a task function was bound to; an empty one for another application's."""
        origin = task.keywords.get("origin") if isinstance(task, partial) else None
        return origin if isinstance(origin, Origin) else Origin()


def resolve_origin(line: CommandLine) -> tuple[CommandLine, Origin]:
    """The command line to pass to Hydra, and where its runs come from.

    ``trust=...`` is removed; the user's own conf/ is added; files named on the command line become options; a
    --config-path to a saved run config becomes one that can be composed. Raises ConfigurationError for other people's
    configs that could run code before they are checked.
    """
    if line.flags.experimental_rerun is not None:
        raise ConfigurationError(NO_RERUN)
    line = with_own_folders(line)
    if line.flags.shell_completion:
        return line, Origin()
    packages, others = split_typed(line.overrides)
    line, typed = offer_files(line.without(set(line.overrides) - set(others)))
    saved_config = saved.read_saved(line.primary) if line.flags.config_path is not None else None
    trust = admit_line(line, packages, saved_config, typed)
    if saved_config is None:
        return line, Origin(trust, packages=tuple(packages), typed=typed)
    saved.register_options(saved_config.config, chosen=line.chosen)
    return line.composing(CONF, saved.NAME), Origin(trust, str(line.primary), tuple(packages))
