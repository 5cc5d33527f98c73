"""The guards that a run config asks for, in the order in which they are asked."""

from collections.abc import Callable

from manyheads.runner.loop.guards.frozen import FrozenNorms, FrozenPhases
from manyheads.runner.loop.guards.guard import Guard
from manyheads.runner.loop.guards.sam import SAM
from manyheads.runner.loop.guards.spikes import NotFiniteGradients, Spikes
from manyheads.runner.loop.guards.verification import Verification
from manyheads.runner.loop.guards.views import Views
from manyheads.runner.loop.update import Wrapped
from manyheads.runner.optimizer.rank.freezing import Phases, frozen_norms
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.parallel.rank.parallel import Parallel
from manyheads.runner.run.run_folder import RunFolder


def build_guards(run: RunConfig, wrapped: Wrapped, parallel: Parallel, phases: Phases | None) -> list[Guard]:
    """The guards of an update, whether or not it is part of a recorded run. ``phases``: of freezing, if any."""
    trainer, guards = run.trainer, list[Guard]()
    if trainer.on_spike is not None:  # before NotFiniteGradients: all ranks exchange their losses in each update
        guards.append(Spikes.of(trainer, parallel))
    if trainer.on_nan == "skip":
        guards.append(NotFiniteGradients())
    if trainer.sam_rho is not None:
        guards.append(SAM(trainer.sam_rho, trainer.sam_every))
    if run.parameters.freeze_batchnorm and (norms := frozen_norms(parallel.unwrap(wrapped.model))):
        guards.append(FrozenNorms(norms))
    if phases is not None:
        guards.append(FrozenPhases(phases))
    if trainer.tta != "none":
        guards.append(Views(trainer.tta))
    return guards


def guards_of_record(run: RunConfig, parallel: Parallel, folder: RunFolder, say: Callable[[str], None]) -> list[Guard]:
    """The guards that write to the run's folder or ``say`` something, asked after all others."""
    trainer = run.trainer
    if not trainer.verify_every or trainer.evaluate_only:
        return []
    retries = trainer.on_corruption == "retry"
    return [Verification(parallel, every=trainer.verify_every, retries=retries, folder=folder, say=say)]
