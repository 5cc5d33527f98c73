"""``python -m runner parity``: take the same steps on several backends."""

import argparse
import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path

from manyheads.launchers.companions import refuse_start
from manyheads.launchers.launch import launch, prepare
from manyheads.runner.answers.measure.steps_task import ParityFindings, ParityTask, StepFiles, write_task
from manyheads.runner.answers.parity.answer import Parity, announce
from manyheads.runner.answers.parity.parity_plan import (
    FAILED,
    NOT_HERE,
    WHICH,
    ParityOutcome,
    PlannedSide,
    judged,
    plan,
)
from manyheads.runner.config.command_line import CommandLine
from manyheads.runner.config.origin import resolve_origin
from manyheads.runner.errors import ConfigurationError, RunFailed, not_allowed
from manyheads.runner.machine.process import blocked_signals, handled_by, interrupt
from manyheads.runner.run.data_files import log_file
from manyheads.runner.run.files import fresh_folder
from manyheads.runner.run.progress import working
from manyheads.runner.run.run_folder import RunFolder

HELP = "take the same steps on several backends, and show whether they differ and why"
PARITY = Path("outputs") / "parity"
RANK = "manyheads.runner.answers.measure.rank.probe"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "overrides", nargs="*", help="as for train; parallel=single,ddp,... names the backends, by default all"
    )
    parser.add_argument("--config-dir", help="a folder of more options, as for train")
    parser.add_argument("--steps", default="10", help="number of steps (10)")


def run(arguments: argparse.Namespace) -> Parity:
    """Compare backends. Raises ConfigurationError, RunFailed."""
    return parity(arguments.overrides, steps=arguments.steps, config_dir=arguments.config_dir)


def parity(overrides: list[str], *, steps: str, config_dir: str | None = None) -> Parity:
    """Take ``steps`` steps on every strategy that the overrides name, and compare them with the first one's.

    config_dir: a folder of more options, as for train. Raises ConfigurationError, and RunFailed if the first one fails.
    """
    if not (steps.isdecimal() and int(steps) >= 1):
        raise not_allowed("--steps", steps, "an integer of at least 1")
    line, origin = resolve_origin(CommandLine.of(overrides, config_dir))
    planned = plan(line, origin)
    first = planned[0].strategy
    frozen = {one.strategy: one.run for one in planned if one.run is not None}
    if len(frozen) == 1:
        reasons = "; ".join(one.reason.rstrip(".") for one in planned if one.reason)
        raise ConfigurationError(f"{WHICH}: there is nothing to compare with {first}: {reasons}.", key=WHICH)
    refuse_start(PARITY.absolute())
    path = fresh_folder(PARITY / time.strftime("%Y-%m-%d") / time.strftime("%H-%M-%S")).resolve()
    for strategy, run in frozen.items():
        RunFolder(path / strategy).write_config(run.written)
    task = ParityTask(
        steps=int(steps),
        tolerance=frozen[first].precision.tolerance,
        trace=all(run.trainer.compile == "none" for run in frozen.values()),
    )
    announce(list(frozen), frozen[first], task)
    baseline = RunFolder(path / first)
    kept = f"what has been compared is in {RunFolder(path)}"
    with handled_by(interrupt), log_file(path / "parity.log"), working(first, len(planned), kept=kept) as work:
        try:
            findings = _run_baseline(baseline, task)
            others = replace(task, baseline=str(baseline.path))
            noise = judged(first, findings, tolerance=task.tolerance, run=frozen[first])
            outcomes = [noise] if noise.differs else []
            for one in planned[1:]:
                work.advance(one.strategy)
                outcomes.append(_outcome(one, path, others))
        finally:
            with blocked_signals():
                shutil.rmtree(StepFiles.of(baseline).folder, ignore_errors=True)
    return Parity.of(outcomes, findings, task, path, first)


def _outcome(planned: PlannedSide, path: Path, task: ParityTask) -> ParityOutcome:
    if (run := planned.run) is None:
        return ParityOutcome(planned.strategy, NOT_HERE, error=planned.reason)
    folder = RunFolder(path / planned.strategy)
    try:
        findings = _run(folder, task)
    except RunFailed as error:
        ranks: ParityFindings = {"ranks": run.launcher.ranks}
        return ParityOutcome(planned.strategy, FAILED, task.tolerance, ranks, error=str(error), run=run)
    return judged(planned.strategy, findings, tolerance=task.tolerance, run=run)


def _run_baseline(baseline: RunFolder, task: ParityTask) -> ParityFindings:
    try:
        return _run(baseline, task)
    except RunFailed:
        print(f"{baseline.path.name}, the baseline, failed, so there is nothing to compare with", file=sys.stderr)
        raise


def _run(folder: RunFolder, task: ParityTask) -> ParityFindings:
    """Have the ranks of a frozen run do the task, and return their findings."""
    write_task(folder, task)
    launch(prepare(folder, apart=True), main=RANK)
    return (folder.read_result() or {})["parity"]
