"""Optuna's Hyperband, with the same brackets in every process."""

from itertools import accumulate
from typing import TYPE_CHECKING, Any
from zlib import crc32

if TYPE_CHECKING:
    from optuna.pruners import HyperbandPruner
    from optuna.study import Study
    from optuna.trial import FrozenTrial


def hyperband(**settings: Any) -> "HyperbandPruner":
    """Optuna's pruner with its own ``settings``, in which study name and trial number decide a trial's bracket.

    Optuna 2 divides trials by ``hash()``, which differs between processes, and so before and after a resume. As in
    Optuna 3, a CRC decides here.
    """
    from optuna.pruners import HyperbandPruner  # imports scikit-learn

    class Hyperband(HyperbandPruner):
        def _get_bracket_id(self, study: "Study", trial: "FrozenTrial") -> int:
            ends = [*accumulate(self._trial_allocation_budgets)]
            drawn = crc32(f"{study.study_name}_{trial.number}".encode()) % ends[-1] if ends else 0
            return next((bracket for bracket, end in enumerate(ends) if drawn < end), 0)

    return Hyperband(**settings)
