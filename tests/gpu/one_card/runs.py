"""Runs on the card, some at a time; ``python -m tests.gpu.one_card.runs`` trains one after another.

The ranks of runs in one process are forked from the same warm one, so that only the first imports torch.
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from manyheads.launchers.job import TRAIN
from manyheads.launchers.launch import launch, prepare
from manyheads.runner.errors import ConfigurationError, RunFailed
from manyheads.runner.machine import hardware
from manyheads.runner.machine.gpus import Board
from manyheads.runner.run.run_folder import RunFolder
from tests.gpu.one_card.card import Card
from tests.gpu.one_card.findings import FAILED, PASSED, ROOT, Findings, execute
from tests.gpu.one_card.held import unlike_estimate
from tests.in_process import config, typed

LONGEST = 90  # s of one run
STAND_IN = ROOT / "tests/apex_stand_in"


@dataclass(frozen=True)
class Run:
    """``main``: the module whose ``main`` is a rank. ``of_gpus``: on CPUs only with a stand-in for Apex."""

    name: str
    overrides: tuple[str, ...]
    main: str = TRAIN
    of_gpus: bool = False

    def folder(self, card: Card) -> RunFolder:
        return RunFolder(card.folder / "runs" / self.name.replace(", ", "-").replace(" ", "_"))


class Outcome(NamedTuple):
    """``error``: why the run failed, or empty; ``held``: what its ranks held otherwise than estimated."""

    error: str
    held: str = ""


def perform(card: Card, runs: list[Run]) -> dict[str, Outcome | None]:
    """What came of each run by name; None if the minutes were over before it."""
    groups = [runs[number :: card.at_once] for number in range(card.at_once)]
    with ThreadPoolExecutor(card.at_once) as pool:
        list(pool.map(lambda group: _perform(card, group), filter(None, groups)))
    return {run.name: _outcome(run.folder(card)) for run in runs}


def _perform(card: Card, runs: list[Run]) -> None:
    listed = runs[0].folder(card).path.with_suffix(".json")
    listed.parent.mkdir(parents=True, exist_ok=True)
    content = [{**asdict(run), "folder": str(run.folder(card).path)} for run in runs]
    listed.write_text(json.dumps({"ends": card.ends, "rehearses": card.rehearses, "runs": content}))
    command = (sys.executable, "-m", __name__, str(listed))
    execute(*command, log=listed.with_suffix(".log"), timeout=card.left + LONGEST if card.left < 1e9 else 1e9)


def _written(folder: RunFolder) -> Path:
    return folder.path.with_suffix(".outcome")


def _outcome(folder: RunFolder) -> Outcome | None:
    path = _written(folder)
    if path.exists():
        return Outcome(*json.loads(path.read_text()))
    return Outcome(f"it did not end within {LONGEST} s") if folder.path.exists() else None


def judge(card: Card, run: Run, outcome: Outcome | None, findings: Findings) -> bool:
    """Note a run that failed, or was not begun; returns whether it completed."""
    if outcome is None:
        findings.leave_out(run.name, "the minutes are over")
    elif outcome.error:
        findings.note(run.name, FAILED, " ".join(outcome.error.split())[:300])
    return outcome is not None and not outcome.error


@contextmanager
def as_on_a_gpu(ranks: int) -> Iterator[None]:
    """A context in which a card is found that as many ranks share, and Apex's stand-in."""
    boards = patch.object(hardware, "_driver", lambda: ("999.9", [Board("Some GPU", "GPU-1")]))
    build = patch.object(hardware, "torch_cuda_version", lambda: "13.0")
    shared = {"MANYHEADS_RANKS_PER_GPU": str(ranks), "CUDA_VISIBLE_DEVICES": "0"}
    with boards, build, patch.dict(os.environ, shared), patch.object(sys, "path", [str(STAND_IN), *sys.path]):
        yield


def check_overrides(card: Card, runs: list[Run], findings: Findings) -> None:
    """Compose every run as on a machine with a GPU: what is missing or refused there is found here."""
    errors = 0
    with as_on_a_gpu(card.ranks):
        for run in runs:
            try:
                typed(*run.overrides)
            except ConfigurationError as error:
                findings.note(f"overrides of {run.name}", FAILED, str(error))
                errors += 1
    if runs and not errors:
        findings.note("overrides of every run, as on a GPU", PASSED, f"{len(runs)} runs")


def _train(run: Run, folder: RunFolder, *, rehearses: bool) -> None:
    with ExitStack() as stack:
        if run.of_gpus and rehearses:
            stack.enter_context(as_on_a_gpu(8))
        content = config(*run.overrides, f"launcher.timeout={LONGEST / 60 * (5 if rehearses else 1)}")
        if rehearses:
            content["trainer"]["device"] = "cpu"
        folder.write_config(content)
        launch(prepare(folder, apart=True), main=run.main)


def main(path: Path) -> None:
    content = json.loads(path.read_text())
    for listed in content["runs"]:
        if time.time() > content["ends"]:
            return
        folder = RunFolder(Path(listed.pop("folder")))
        run, error, held = Run(**listed), "", ""
        folder.path.mkdir(parents=True)
        print(f"--- {run.name}: {' '.join(run.overrides)}", flush=True)
        try:
            _train(run, folder, rehearses=content["rehearses"])
            held = unlike_estimate(folder) if run.main == TRAIN and not run.of_gpus else ""
        except (ConfigurationError, RunFailed) as failure:
            error = str(failure)
        _written(folder).write_text(json.dumps(Outcome(error, held)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
