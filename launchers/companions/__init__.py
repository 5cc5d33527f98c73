"""Companions run beside the ranks of a run: each module and package in this folder is one.

A companion has a ``SPAN`` and a context manager ``accompany(run)``, which decides itself whether the run has a use for
it. It may have ``refuse_start(folder)`` and ``accompany_program(folder)``, of which the functions below speak. Nothing
else names one, so that a companion is added or removed with its file.
"""

import importlib
import pkgutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from types import ModuleType

from manyheads.runner.errors import Interrupted
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.run.heartbeat import Heartbeat
from manyheads.runner.run.json_types import ResultJson
from manyheads.runner.run.run_folder import RunFolder


class Span(IntEnum):
    """When a companion is present. Those of a smaller value start before the others and end after them."""

    FIRST = -1  # in the process of the command; ends before anything starts
    COMMAND = 0  # in the process of the command, wherever the ranks run; ends last
    STORED = 1  # in the parent; ends once everything else has been written to the run folder
    RUN = 2  # in the parent; ends after result.json has been written
    RANKS = 3  # in the parent; ends before result.json is written


@dataclass(frozen=True)
class Accompanied:
    """A run as its companions see it.

    ``trains``: whether its ranks train or evaluate, rather than examine something for another command. ``variables``:
    the ranks' environment, to which a companion may add. ``signals``: received by the parent, in order; a further one
    ends a companion's wait. ``composed_from``: the saved config that the run's config was composed from.
    ``heartbeat``: of its ranks, once they are about to start. ``reasons``: why ``stop`` was called.
    """

    folder: RunFolder
    run: RunConfig
    trains: bool = True
    variables: dict[str, str] = field(default_factory=dict)
    signals: list[int] = field(default_factory=list)
    composed_from: str | None = None
    heartbeat: Heartbeat | None = None
    reasons: list[Interrupted] = field(default_factory=list)

    def stop(self, reason: Interrupted) -> None:
        """Stop the ranks as a signal would, which ``launch`` then answers with ``reason``; from any thread.

        A run that trains writes a checkpoint; of others nothing is kept, so they end at once.
        """
        self.reasons.append(reason)
        self.signals.extend([reason.signum] if self.trains else [reason.signum] * 2)
        if self.trains and self.heartbeat is not None:  # which a rank in this process reads, too
            self.heartbeat.stop_signal = reason.signum

    def outcome(self, end: BaseException) -> ResultJson:
        """The result of a run that had completed when it was stopped. Raises what ``stop`` was told, else ``end``."""
        if not self.reasons or not isinstance(end, Interrupted):
            raise end
        if self.trains and (completed := self.folder.completed()) is not None:
            return completed
        raise self.reasons[0] from end

    @contextmanager
    def with_companions(self, *spans: Span) -> Iterator[None]:
        """A context in which the companions of these spans are present. Raises as they do."""
        with ExitStack() as stack:
            for companion in (module for module in _companions() if module.SPAN in spans):
                stack.enter_context(companion.accompany(self))
            yield


def refuse_start(folder: Path) -> None:
    """Let companions refuse what is about to start ranks, before anything is written. Raises what they raise.

    ``folder``: that of the run, or of all runs of a sweep or a judgement.
    """
    for companion in _companions():
        if hasattr(companion, "refuse_start"):
            companion.refuse_start(folder)


@contextmanager
def accompanied_program(folder: Path) -> Iterator[None]:
    """A context for another program that computes on this machine's devices in place of ranks. Raises as companions do.

    ``folder``: where its output is.
    """
    with ExitStack() as stack:
        for companion in _companions():
            if hasattr(companion, "accompany_program"):
                stack.enter_context(companion.accompany_program(folder))
        yield


def _companions() -> list[ModuleType]:
    """The companions, in the order in which they start."""
    names = [f"{__name__}.{module.name}" for module in pkgutil.iter_modules(__path__)]
    return sorted(map(importlib.import_module, names), key=lambda module: (module.SPAN, module.__name__))
