"""The guards that a run config asks for, in the order in which they are asked.

They are loaded by name, as options are: a run that asks for none imports none.
"""

from collections.abc import Callable, Sequence

from torch import nn

from manyheads.runner.loop.guards.guard import Guard
from manyheads.runner.optimizer.rank.freezing import Phases
from manyheads.runner.option.locate import load
from manyheads.runner.option.trainer_section import TrainerSection
from manyheads.runner.parallel.rank.parallel import Parallel
from manyheads.runner.run.run_folder import RunFolder

GUARDS = "manyheads.runner.loop.guards"


def build_guards(
    trainer: TrainerSection, parallel: Parallel, *, norms: Sequence[nn.Module], phases: Phases | None
) -> list[Guard]:
    """The guards of an update, whether or not it is part of a recorded run.

    ``norms``: whose statistics are frozen; ``phases``: of freezing, if any.
    """
    guards: list[Guard] = []
    if trainer.on_spike is not None:  # before NotFiniteGradients: all ranks exchange their losses in each update
        guards.append(load(f"{GUARDS}.spikes.Spikes").of(trainer, parallel))
    if trainer.on_nan == "skip":
        guards.append(load(f"{GUARDS}.spikes.NotFiniteGradients")())
    if trainer.sam_rho is not None:
        guards.append(load(f"{GUARDS}.sam.SAM")(trainer.sam_rho, trainer.sam_every))
    if norms:
        guards.append(load(f"{GUARDS}.frozen.FrozenNorms")(norms))
    if phases is not None:
        guards.append(load(f"{GUARDS}.frozen.FrozenPhases")(phases))
    if trainer.tta != "none":
        guards.append(load(f"{GUARDS}.views.Views")(trainer.tta))
    return guards


def guards_of_record(
    trainer: TrainerSection, parallel: Parallel, folder: RunFolder, say: Callable[[str], None]
) -> list[Guard]:
    """The guards that write to the run's folder or ``say`` something, asked after all others."""
    if not trainer.verify_every or trainer.evaluate_only:
        return []
    verification = load(f"{GUARDS}.verification.Verification")
    retries = trainer.on_corruption == "retry"
    return [verification(parallel, every=trainer.verify_every, retries=retries, folder=folder, say=say)]
