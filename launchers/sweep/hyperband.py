"""Optuna's Hyperband, with the same brackets in every process."""

from itertools import accumulate
from typing import TYPE_CHECKING
from zlib import crc32

from optuna.pruners import HyperbandPruner

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial


class Hyperband(HyperbandPruner):
    """Optuna 2 divides trials by ``hash()``, which differs between processes, and so before and after a resume.

    As in Optuna 3, the CRC of study name and trial number decides.
    """

    def _get_bracket_id(self, study: "Study", trial: "FrozenTrial") -> int:
        ends = [*accumulate(self._trial_allocation_budgets)]
        drawn = crc32(f"{study.study_name}_{trial.number}".encode()) % ends[-1] if ends else 0
        return next((bracket for bracket, end in enumerate(ends) if drawn < end), 0)
