"""What one update of a run config would hold and send, rehearsed without its devices and its other ranks."""

import time
from dataclasses import dataclass

from manyheads.runner.answers.measure.findings import Estimate
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.run_config import RunConfig


@dataclass(frozen=True)
class PlannedEstimate:
    """A combination of swept values. ``label``: the overrides by which it differs from the others.

    ``run``: its config; None if it is refused, for this ``reason``.
    """

    label: str
    run: RunConfig | None
    reason: str = ""


def estimated(planned: PlannedEstimate, *, alone: bool = True) -> Estimate:
    """Estimate one configuration. Raises ConfigurationError for one that is ``alone`` and refused."""
    if planned.run is None:
        return Estimate(planned.label, "", reason=planned.reason)
    from manyheads.runner.answers.measure.rank.rehearsal import rehearse

    name, began = planned.run.parallel.name, time.perf_counter()
    try:
        first = rehearse(planned.run, 0)
        others = [
            rehearse(planned.run, rank, follows=follows and not first.holds.stops).holds
            for rank, follows in first.unlike.items()
            if rank != 0
        ]
    except ConfigurationError as error:
        if alone:
            raise
        return Estimate(planned.label, name, reason=str(error))
    seconds = time.perf_counter() - began
    holds = (first.holds, *others)
    return Estimate(
        planned.label, name, planned.run.launcher.ranks, first.layout, first.samples, holds=holds, seconds=seconds
    )
