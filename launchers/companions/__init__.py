"""Companions run beside the ranks of a run: each module and package in this folder is one.

A companion has a ``SPAN`` and a context manager ``accompany(run)``, which decides itself whether the run has a use for
it. Nothing else names one, so that a companion is added or removed with its file.
"""

import importlib
import pkgutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from enum import IntEnum

from manyheads.runner.option.run_config import RunConfig
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
    """

    folder: RunFolder
    run: RunConfig
    trains: bool = True
    variables: dict[str, str] = field(default_factory=dict)
    signals: list[int] = field(default_factory=list)
    composed_from: str | None = None

    @contextmanager
    def with_companions(self, *spans: Span) -> Iterator[None]:
        """A context in which the companions of these spans are present. Raises as they do."""
        names = [f"{__name__}.{module.name}" for module in pkgutil.iter_modules(__path__)]
        companions = sorted(map(importlib.import_module, names), key=lambda module: (module.SPAN, module.__name__))
        with ExitStack() as stack:
            for companion in (module for module in companions if module.SPAN in spans):
                stack.enter_context(companion.accompany(self))
            yield
