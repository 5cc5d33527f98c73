"""Short runs from the recorded run's own weights, so that rounding has no time to be amplified.

With the same weights and the same samples, the losses must be the recorded ones, whatever the number of ranks, while
whole fp32 curves of two layouts may end anywhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from manyheads.runner.commands.reproduce.curves import evaluated, pairs
from manyheads.runner.commands.reproduce.recorded import Past
from manyheads.runner.commands.reproduce.rerun import Rerun
from manyheads.runner.config.command_line import quoted
from manyheads.runner.errors import Failure, Kind, RunFailed
from manyheads.runner.report.load_run import load_run
from manyheads.runner.report.rounding import STEADY_STEPS, Pair
from manyheads.runner.run.checkpoint_places import by_step
from manyheads.runner.run.progress import each

MOST = 3


@dataclass(frozen=True)
class ReplayWindow:
    """``since``: the step whose weights it began with; ``found``: its values against the recorded ones."""

    since: int
    found: list[Pair]


def windows(past: Past, program: Rerun, folder: Path, overrides: list[str]) -> list[ReplayWindow]:
    """From up to three checkpoints of the recorded run, and an evaluation of its final weights.

    Raises RunFailed when one of these runs fails.
    """
    made = []
    starts = _starts(past)
    print("the curves alone cannot decide this: replaying from the recorded weights", flush=True)
    for number, (step, checkpoint) in each([*enumerate(starts, 1)], "replaying"):
        end = _end(past.steps["step"], step)
        path = folder / f"from_step_{step}"
        print(f"  from step {step} to {end} ({number} of {len(starts)})", flush=True)
        start = ("checkpoint.load=null", f"checkpoint.resume={quoted(checkpoint)}", "checkpoint.every=0")
        _run(program, path, *overrides, *start, f"trainer.stop_after={end}")
        made.append(ReplayWindow(step, pairs(past, load_run(path), resumed=True)))
    if past.result["metrics"].get("val_loss") is not None and past.folder.last_checkpoint.exists():
        path = folder / "evaluation"
        print("  evaluating the final weights", flush=True)
        weights = f"checkpoint.load={quoted(past.folder.last_checkpoint)}"
        _run(program, path, *overrides, "checkpoint.resume=null", weights, "trainer.evaluate_only=true")
        made.append(ReplayWindow(past.result["steps"], evaluated(past.result, load_run(path).result)))
    return made


def _run(program: Rerun, path: Path, *overrides: str) -> None:
    if (ended := program.run(path, *overrides, quiet=True)).code:
        message = f"the check in {path} failed: {ended.error()}"
        raise RunFailed(Failure(Kind.PROGRAM_FAILED, message=message))


def _starts(past: Past) -> list[tuple[int, Path]]:
    """Checkpoints after which the recorded run logged something, spread over it: step and file."""
    last = max(past.steps.get("step", []), default=0)
    found = by_step(past.folder.checkpoints)
    steps = sorted(step for step in found if step < last)
    chosen = steps if len(steps) <= MOST else [steps[0], steps[len(steps) // 2], steps[-1]]
    return [(step, found[step]) for step in chosen]


def _end(logged: Sequence[float], since: int) -> int:
    """As many steps as rounding stays small for, but at least one row."""
    after = [int(step) for step in logged if step > since]
    return max([step for step in after if step <= since + STEADY_STEPS], default=after[0])
