"""What one update of a run config would hold and send, rehearsed without its devices and its other ranks."""

import time
from dataclasses import dataclass
from functools import partial

from manyheads.runner.answers.measure.findings import Estimate
from manyheads.runner.errors import ConfigurationError, Unavailable
from manyheads.runner.machine.software import too_old
from manyheads.runner.option.run_config import RunConfig


@dataclass(frozen=True)
class PlannedEstimate:
    """A combination of swept values. ``label``: the overrides by which it differs from the others.

    ``run``: its config; None if it is refused, for this ``reason``. ``on_gpus``: what it is meant for.
    """

    label: str
    run: RunConfig | None
    reason: str = ""
    on_gpus: bool = False


def estimated(planned: PlannedEstimate, *, alone: bool = True) -> Estimate:
    """Estimate one configuration. Raises ConfigurationError for one that is ``alone`` and refused."""
    if planned.run is None:
        return Estimate(planned.label, "", reason=planned.reason)
    from manyheads.runner.answers.measure.rank.rehearsal import rehearse as rehearse_rank

    rehearse = partial(rehearse_rank, planned.run, on_gpus=planned.on_gpus)
    name, began = planned.run.parallel.name, time.perf_counter()
    try:
        _refuse_uncounted(planned.run)
        first = rehearse(0)
        others = [
            rehearse(rank, follows=follows and not first.holds.stops).holds
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


def _refuse_uncounted(run: RunConfig) -> None:
    """Raises Unavailable for what older releases of torch keep without saying so."""
    for name, section in (("trainer", run.written["trainer"]), ("parallel", run.written["parallel"])):
        if section.get("recompute") == "selective" and (reason := too_old("2.14")):
            raise Unavailable.at(f"{name}.recompute", "selective", f": to count what it keeps, {reason}.")
