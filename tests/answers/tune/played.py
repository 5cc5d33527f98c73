"""A tuning's runs that only seem to be made, in a ledger that is real."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from manyheads.runner.answers.measure.rows import BASE, COMPLETED, FACTS, FAILED, RunRow
from manyheads.runner.answers.measure.runs import Purpose, Runs
from manyheads.runner.errors import Interrupted

FACTS_OF_ALL: dict[str, Any] = {
    "per_epoch": 20,
    "order": "o",
    "samples_per_update": [8],
    "dtypes": {"float32": 1},
    "matmul": "highest",
    "batch_statistics": False,
    "train": "t",
    "val": "v",
    "evaluated": 8,
    "overlap": 0,
}
STEPS = {"differences": [], "initial": [], "apart": [], "casts": False}
FLOORS = {"update": [0.01], "loader": [0.008], "batch": [0.004], "optimizer": [0.001]}


class Played(Runs):
    """``seconds``: of an update, by the name of the configuration; ``facts``: of a configuration, if not FACTS_OF_ALL.

    ``fails``: a reason, by purpose and configuration; ``stop``: the number of the run that a signal stops; ``startup``:
    seconds that each run takes beside its updates, by a clock of its own; ``peak_mb``: memory, by configuration.
    """

    def __init__(
        self,
        folder: Path,
        seconds: Callable[[str], float] = lambda arm: 0.01,
        *,
        facts: Callable[[str], dict[str, Any]] = lambda arm: {},
        fails: Callable[[str, str], str | None] = lambda purpose, arm: None,
        stop: int | None = None,
        startup: float = 1.0,
        peak_mb: Callable[[str], float] = lambda arm: 100.0,
    ):
        super().__init__(folder)
        self.seconds, self.facts, self.fails, self.stop, self.startup = seconds, facts, fails, stop, startup
        self.peak_mb = peak_mb
        self.configs: list[Any] = []

    def start(self, config: Any, purpose: Purpose, *, arm: str, round: int = 0, turn: int = 0) -> RunRow:
        rows = self.ledger.rows()
        number, began = len(rows), max([row.ended or row.began for row in rows], default=0.0)
        row = RunRow(number, purpose.name, round, turn, arm, config["seed"], f"runs/{number}", began, signature="s")
        self.ledger.write(row)
        self.configs.append(config)
        if number == self.stop:
            raise Interrupted(2)
        updates = config["trainer"]["stop_after"] or 10
        noise = 1 + 0.002 * (number % 7 - 3)
        seconds = updates * noise * self.seconds(arm)
        ended = replace(row, ended=began + self.startup + seconds, machine="m", code="")
        if reason := self.fails(purpose.name, arm):
            row = replace(ended, state=FAILED, reason=reason)
        else:
            row = replace(ended, state=COMPLETED, findings=self._findings(purpose.name, arm, seconds, updates))
        self.ledger.write(row)
        return row

    def _findings(self, purpose: str, arm: str, seconds: float, updates: int) -> dict[str, Any]:
        if purpose == FACTS:
            return {**FACTS_OF_ALL, **(self.facts(arm) if arm != BASE else {})}
        if purpose in ("steps", "exact"):
            return STEPS
        if purpose == "limits":
            return {"floors": FLOORS}
        if purpose == "proof":
            return {"metrics": {}}
        timed = {"seconds": seconds, "updates": updates, "samples": updates, "marked": seconds}
        return {**timed, "weights_sha256": "w", "peak_mb": self.peak_mb(arm)}
