"""Starts the runs of a judgement, one after another, each with new ranks, and writes the ledger."""

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from manyheads.launchers.launch import launch, prepare
from manyheads.launchers.sweep.slots import output_to
from manyheads.runner.answers.judge.question import config_digest
from manyheads.runner.answers.judge.revision import BaseCode
from manyheads.runner.answers.judge.rows import BASE, COMPLETED, EXACT, FAILED, ROUND, RunLedger, RunRow
from manyheads.runner.answers.judge.task import CodeTask, write_code_task
from manyheads.runner.errors import ConfigurationError, RunFailed
from manyheads.runner.option.locate import Section
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.records.claims import machine_of
from manyheads.runner.run.data_files import read_json
from manyheads.runner.run.files import remove
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.run.seal import digest_of

RUNS = "runs"  # the folder of all runs
AT_REVISION = "manyheads.runner.answers.judge.rank.at_revision"


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


class Runs:
    """The runs of the judgement in ``folder``. ``base``: the code that base runs; None for the working tree's."""

    def __init__(self, folder: Path, base: BaseCode | None = None):
        self.folder, self.ledger, self._base = folder, RunLedger(folder), base

    def discard(self) -> None:
        """Remove all runs, and the ledger last, so that the question can be asked afresh."""
        remove(self.folder / RUNS)
        remove(self.ledger.path)

    def start(self, config: Section, purpose: Purpose, *, arm: str, round: int = 0, place: int = 0) -> RunRow:
        """Run a config to its end and record its row, also if it failed.

        Raises RunFailed or ConfigurationError if base fails, except in a round and in steps in double precision, and
        Interrupted.
        """
        number = len(self.ledger.rows())
        folder = f"{RUNS}/{number:04d}-{purpose.name}"  # without the arm's name, so that nothing but the config differs
        began, signature = time.time(), config_digest(config)
        row = RunRow(number, purpose.name, round, place, arm, config["seed"], folder, began, signature=signature)
        self.ledger.write(row)
        try:
            row = self._done(row, config, purpose)
        except (RunFailed, ConfigurationError) as error:
            self.ledger.write(row := replace(row, state=FAILED, reason=str(error), ended=time.time()))
            if arm == BASE and purpose.name not in (ROUND, EXACT):
                print("base failed, so nothing can be compared", file=sys.stderr)
                raise
            return row
        self.ledger.write(row)
        return row

    def _done(self, row: RunRow, config: Section, purpose: Purpose) -> RunRow:
        folder, base = RunFolder(self.folder / row.folder), self._base
        config = base.redirected(config) if base and row.arm == BASE else config
        folder.write_config(RunConfig.of(config).written)
        purpose.prepare(folder)
        if base:
            folders = base.folders(config) if row.arm == BASE else []
            write_code_task(folder, CodeTask(purpose.rank, str(base.project), folders))
        with output_to(str(folder.path / "console.log")):
            launch(prepare(folder, apart=True), main=AT_REVISION if base else purpose.rank)
        findings = purpose.read(folder, folder.read_result() or {})
        provenance = read_json(folder.provenance)
        machine = machine_of(provenance)
        code = base.commit if base and row.arm == BASE else digest_of(provenance.get("own_code"))
        return replace(row, state=COMPLETED, findings=findings, machine=machine, code=code, ended=time.time())
