"""``python -m runner reproduce``: repeat a finished run, and show whether the result is the same."""

import argparse
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from rich.text import Text

from manyheads.runner.commands import A_RUN
from manyheads.runner.commands.reproduce.recorded import Past, read_past, unlike_scores
from manyheads.runner.commands.reproduce.rerun import (
    Rerun,
    recorded_program,
    second_repetition,
    windows,
)
from manyheads.runner.commands.reproduce.verdict import DIFFERENT, EQUAL, IDENTICAL, ReproductionVerdict, decide
from manyheads.runner.config.fresh_folder import RUN_DIR, new_folder
from manyheads.runner.errors import ConfigurationError, ExitCode, not_allowed
from manyheads.runner.machine.console import Console
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.provenance.code_state import code_at_start
from manyheads.runner.provenance.node_records import unless_submitted
from manyheads.runner.provenance.past_config import PastConfig
from manyheads.runner.provenance.provenance import describe
from manyheads.runner.records.load_run import load_run
from manyheads.runner.records.rounding import ComparedValue
from manyheads.runner.records.surroundings import Difference, differences, overridden, show
from manyheads.runner.run.answer import Answer
from manyheads.runner.run.progress import keeping, working
from manyheads.runner.run.run_folder import RunFolder

HELP = "repeat a finished run, and show whether the result is the same"
STYLES = {IDENTICAL: "bold green", EQUAL: "bold green", DIFFERENT: "bold red"}


@dataclass(frozen=True)
class Reproduced(Answer):
    """A run, its repetition, and whether both have the same results."""

    of: Annotated[Path, "the folder of the recorded run"]
    folder: Annotated[Path, "the folder of the repetition"]
    verdict: Annotated[str, "identical, equal within tolerance, or different"]
    reason: str
    rests_on: Annotated[Mapping[str, Any], "the numbers that the verdict is based on"]
    overrides: list[str]
    differences: Annotated[list[Difference], "changes since the recording; those that can affect numbers come first"]

    @property
    def exit_code(self) -> ExitCode:
        return ExitCode.NO if self.verdict == DIFFERENT else ExitCode.DONE

    def show(self) -> None:
        console = Console()
        text = Text.assemble((self.verdict, STYLES[self.verdict]), f": {self.reason}")
        console.print(text, soft_wrap=not console.is_terminal)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("run_folder", metavar="run", help=A_RUN)
    parser.add_argument("overrides", nargs="*", help="changes, such as parallel=ddp launcher.nproc_per_node=3")
    parser.add_argument("--steps", help="stop after this many steps")
    parser.add_argument(
        "--code", action="store_true", help="run the recorded commit and changes instead of today's code"
    )


def run(arguments: argparse.Namespace) -> Reproduced:
    """Repeat a run and compare the results. Raises ConfigurationError, RunFailed."""
    return reproduce(arguments.run_folder, arguments.overrides, steps=arguments.steps, code=arguments.code)


def reproduce(path: str, overrides: list[str], *, steps: str | None, code: bool) -> Reproduced:
    """Repeat a run and compare the results.

    path: its folder. overrides: changes to its config. steps: how many to repeat, as typed. code: run the recorded
    commit with its changes instead of today's code. Raises ConfigurationError, and RunFailed if the repetition fails.
    """
    past = read_past(path)
    changed = (
        PastConfig.admitted(past.folder, overrides) if code else PastConfig.of(past.folder, past.config, overrides)
    )
    end = last_step(past, steps)
    with recorded_program(past) if code else nullcontext(Rerun(past.folder.config)) as program:
        differing = _differences(past, overrides, None if code else changed.checked())
        show(differing)
        folder = RunFolder(new_folder(overrides))
        plain = [*(override for override in overrides if not override.startswith(RUN_DIR)), *changed.replaced]
        with keeping("reproduce", f"{past.folder} is unchanged; there is no verdict. The same command starts over"):
            program.train(folder, *plain, *([f"trainer.stop_after={end}"] if end else []))
            result = _verdict(past, folder, program, plain)
    answer = Reproduced(
        past.folder.path, folder.path, result.kind, result.reason, result.rests_on, overrides, differing
    )
    recorded = {name: value for name, value in vars(answer).items() if name != "folder"}
    recorded |= {"of": str(answer.of), "differences": [difference._asdict() for difference in differing]}
    folder.write_json(folder.result, {**(folder.read_result() or {}), "reproduction": recorded})
    return answer


def last_step(past: Past, steps: str | None) -> int | None:
    """The logged step at which the repetition ends: the first from ``steps`` on; None for the run's last step.

    Raises ConfigurationError for a number that is not allowed.
    """
    if steps is None:
        return None
    if not (steps.isdecimal() and int(steps) > 0):
        raise not_allowed("--steps", steps, "an integer of at least 1")
    if past.config["trainer"]["evaluate_only"]:
        raise ConfigurationError.at("--steps", steps, f": {past.folder} took none; it only evaluated. Leave it out.")
    logged = [int(step) for step in past.steps.get("step", []) if step >= int(steps)]
    if not logged or logged[0] >= past.result["steps"]:
        return None
    if logged[0] > int(steps):
        print(f"up to step {logged[0]}, the first logged step at or after {steps}")
    return logged[0]


def _differences(past: Past, overrides: list[str], run: RunConfig | None) -> list[Difference]:
    """The differences that are known before the run. run: the config that runs here; None if the recorded code runs."""
    diffs = None if run is None else (past.folder.code_changes(), code_at_start()[1])
    now = unless_submitted(describe(RunConfig.of(past.config) if run is None else run), past.provenance)
    return differences(past.provenance, now, chosen=overridden(past.config, overrides), diffs=diffs)


def _verdict(past: Past, folder: RunFolder, program: Rerun, overrides: list[str]) -> ReproductionVerdict:
    now = load_run(folder.path)
    for note in unlike_scores(past.result, now.result).values():
        print(note)

    def weights() -> ComparedValue | None:
        with working("comparing the weights"):
            from manyheads.runner.commands.reproduce.rank import farthest_weight

            compared = farthest_weight(past.folder, folder)
        if compared is None:
            return None
        name, before, after, relative = compared
        return ComparedValue(f"weights {name}", past.result["steps"], before, after, relative)

    both, checks = (load_run(past.folder.path), now), folder.path / "checks"
    again = partial(second_repetition, past, now, program, checks / "second", overrides)
    return decide(
        past,
        now,
        tolerance=max(run.declared("precision").tolerance for run in both),
        weights=weights,
        windows=lambda: windows(past, program, checks, overrides),
        second=None if now.repeats_exactly else again,
    )
