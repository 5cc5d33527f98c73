"""Starts runs one after another, each with new ranks, and writes their ledger."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from manyheads.launchers.launch import launch, prepare
from manyheads.launchers.sweep.slots import output_to
from manyheads.runner.answers.measure.recording import Recording
from manyheads.runner.answers.measure.rows import COMPLETED, RunRow
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.option.tree import Section
from manyheads.runner.records.claims import machine_of
from manyheads.runner.run.data_files import read_json
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.run.seal import digest_of


@dataclass(frozen=True)
class Purpose:
    """What a run is started for.

    ``rank``: the module whose ``main`` is a rank. ``prepare``: called with the run folder before the ranks start.
    ``read``: called with the run folder and the content of result.json; returns the findings.
    """

    name: str
    rank: str
    prepare: Callable[[RunFolder], None]
    read: Callable[[RunFolder, Mapping[str, Any]], Mapping[str, Any]]


class ArmCode:
    """The code that an arm runs: the working tree's. A subclass may give base another."""

    def config(self, config: Section, arm: str) -> Section:
        """The run config of the arm, in which paths name files of its code."""
        return config

    def rank(self, config: Section, arm: str, rank: str) -> tuple[str, dict[str, str]]:
        """The module that runs ``rank`` with the arm's code, and variables of its environment."""
        return rank, {}

    def digest(self, provenance: Mapping[str, Any], arm: str) -> str:
        """A digest of the user's own code in a run of the arm."""
        return digest_of(provenance.get("own_code"))


class Runs(Recording):
    """The runs in ``folder``, which a ledger lists. ``code``: the code of each arm."""

    def __init__(self, folder: Path, code: ArmCode | None = None):
        super().__init__(folder)
        self._code = code or ArmCode()

    def start(self, config: Section, purpose: Purpose, *, arm: str, round: int = 0, turn: int = 0) -> RunRow:
        """Run a config to its end and record its row, also if it failed. Raises as ``record``."""
        return self.record(
            lambda row: self._done(row, config, purpose),
            purpose=purpose.name,
            arm=arm,
            round=round,
            turn=turn,
            seed=config["seed"],
            signature=config_digest(config),
        )

    def _done(self, row: RunRow, config: Section, purpose: Purpose) -> RunRow:
        folder, code = RunFolder(self.folder / row.folder), self._code
        config = code.config(config, row.arm)
        folder.write_config(RunConfig.of(config).written)
        purpose.prepare(folder)
        rank, variables = code.rank(config, row.arm, purpose.rank)
        with output_to(str(folder.path / "console.log")):
            plan = prepare(folder, apart=True)
            launch(replace(plan, variables={**plan.variables, **variables}), main=rank)
        findings = purpose.read(folder, folder.read_result() or {})
        provenance = read_json(folder.provenance)
        return replace(
            row,
            state=COMPLETED,
            findings=findings,
            machine=machine_of(provenance),
            code=code.digest(provenance, row.arm),
            ended=time.time(),
        )


def config_digest(config: Section) -> str:
    """A digest of a run config without its seed."""
    return digest_of({key: value for key, value in config.items() if key != "seed"})
