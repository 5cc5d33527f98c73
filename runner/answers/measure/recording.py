"""Records runs in a ledger, one after another, whatever they run."""

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from manyheads.runner.answers.measure.rows import BASE, EXACT, FAILED, ROUND, RunLedger, RunRow
from manyheads.runner.errors import ConfigurationError, RunFailed
from manyheads.runner.run.files import remove

RUNS = "runs"  # the folder of all runs


class Recording:
    """The runs in ``folder``, which a ledger lists."""

    def __init__(self, folder: Path):
        self.folder, self.ledger = folder, RunLedger(folder)

    def discard(self) -> None:
        """Remove all runs, and the ledger last, so that its question can be asked afresh."""
        remove(self.folder / RUNS)
        remove(self.ledger.path)

    def record(
        self,
        work: Callable[[RunRow], RunRow],
        *,
        purpose: str,
        arm: str,
        round: int,
        turn: int,
        seed: int,
        signature: str,
    ) -> RunRow:
        """Start a run and record its end. ``work``: runs it, and returns its completed row.

        Raises RunFailed or ConfigurationError if base fails, except in a round and in steps in double precision, and
        Interrupted.
        """
        number = len(self.ledger.rows())
        folder = f"{RUNS}/{number:04d}-{purpose}"  # without the arm's name, so that nothing but the config differs
        row = RunRow(number, purpose, round, turn, arm, seed, folder, time.time(), signature=signature)
        self.ledger.write(row)
        try:
            row = work(row)
        except (RunFailed, ConfigurationError) as error:
            self.ledger.write(row := replace(row, state=FAILED, reason=str(error), ended=time.time()))
            if arm == BASE and purpose not in (ROUND, EXACT):
                print("base failed, so nothing can be compared", file=sys.stderr)
                raise
            return row
        self.ledger.write(row)
        return row
