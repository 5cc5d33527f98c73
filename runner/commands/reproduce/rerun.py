"""Repeats a recorded run in child processes: a few updates, or its first ones once more.

Short runs start from weights of the recorded run, so that rounding has no time to be amplified: with the same weights
and the same samples, losses must be the recorded ones for any number of ranks, while entire fp32 curves on different
numbers of ranks may end anywhere.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from manyheads.runner.commands.reproduce.recorded import Past, evaluated, pairs
from manyheads.runner.config.quoting import quoted
from manyheads.runner.errors import ConfigurationError, Failure, Kind, RunFailed
from manyheads.runner.machine import invocation
from manyheads.runner.provenance.code_state import checkout
from manyheads.runner.records.load_run import Run, load_run
from manyheads.runner.records.rerun import Rerun
from manyheads.runner.records.rounding import STEADY_STEPS, ComparedValue
from manyheads.runner.run.checkpoint_places import by_step
from manyheads.runner.run.progress import each


@contextmanager
def recorded_program(past: Past) -> Iterator[Rerun]:
    """The recorded commit with the recorded changes, in a temporary worktree.

    Raises ConfigurationError if the commit does not exist, and for code that the user neither recorded with this run
    nor trusts.
    """
    commit, diff = past.provenance.get("commit"), past.folder.code_changes()
    if not isinstance(commit, str) or not re.fullmatch("[0-9a-f]{40,64}", commit):
        raise ConfigurationError(
            f"--code: {past.folder} was not recorded in a git repository. Leave out --code.", key="--code"
        )
    if not past.folder.owns(commit=commit, **{past.folder.code_diff.name: diff}):
        changes = f" with {past.folder.code_diff.name}" if diff else ""
        raise ConfigurationError(
            f"--code: {past.folder} was not recorded by you, or was edited, and commit {commit}{changes} would be run, "
            "which may have faults that were fixed since. Leave out --code; or look at that code and, to trust it, "
            f"run once: {invocation.command('trust', past.folder)}",
            key="--code",
        )
    with checkout(commit, diff) as root:
        yield Rerun(past.folder.config, root)


MOST = 3  # checkpoints to replay from


def windows(past: Past, program: Rerun, folder: Path, overrides: list[str]) -> dict[int, list[ComparedValue]]:
    """Replay updates from up to MOST checkpoints of the recorded run, and evaluate its final weights.

    ``folder``: for these runs. Returns the values of both runs, by the step from whose weights the updates start.
    Raises RunFailed if one of them fails.
    """
    replayed, starts = {}, _starts(past)
    print("the curves alone cannot decide this: replaying from the recorded weights", flush=True)
    for number, (step, checkpoint) in each([*enumerate(starts, 1)], "replaying"):
        end = _end(past.steps["step"], step)
        path = folder / f"from_step_{step}"
        print(f"  from step {step} to {end} ({number} of {len(starts)})", flush=True)
        start = ("checkpoint.load=null", f"checkpoint.resume={quoted(checkpoint)}", "checkpoint.every=0")
        _run(program, path, *overrides, *start, f"trainer.stop_after={end}")
        replayed[step] = pairs(past, load_run(path), resumed=True)
    if past.result["metrics"].get("val_loss") is not None and past.folder.last_checkpoint.exists():
        path = folder / "evaluation"
        print("  evaluating the final weights", flush=True)
        weights = f"checkpoint.load={quoted(past.folder.last_checkpoint)}"
        _run(program, path, *overrides, "checkpoint.resume=null", weights, "trainer.evaluate_only=true")
        replayed[past.result["steps"]] = evaluated(past.result, load_run(path).result)
    return replayed


def second_repetition(
    past: Past, now: Run, program: Rerun, folder: Path, overrides: list[str], until: int
) -> tuple[list[ComparedValue], list[ComparedValue]]:
    """Repeat the run once more, up to the step ``until``, into ``folder``. Raises RunFailed.

    Returns its values with those of the recorded run, and with those of the first repetition.
    """
    print(
        "GPU kernels may differ from run to run: repeating the first updates once more to see by how much", flush=True
    )
    _run(program, folder, *overrides, "checkpoint.every=0", f"trainer.stop_after={until}")
    repeated = load_run(folder)
    return pairs(past, repeated), pairs(replace(past, steps=now.steps, epochs=now.epochs), repeated)


def _run(program: Rerun, path: Path, *overrides: str) -> None:
    if (ended := program.run(path, *overrides, quiet=True)).code:
        raise RunFailed(Failure(Kind.PROGRAM_FAILED, message=f"the check in {path} failed: {ended.error()}"))


def _starts(past: Past) -> list[tuple[int, Path]]:
    """Checkpoints after which the recorded run logged something, spread over the run: steps and files."""
    last = max(past.steps.get("step", []), default=0)
    checkpoints = by_step(past.folder.checkpoints)
    steps = sorted(step for step in checkpoints if step < last)
    chosen = steps if len(steps) <= MOST else [steps[0], steps[len(steps) // 2], steps[-1]]
    return [(step, checkpoints[step]) for step in chosen]


def _end(logged: Sequence[float], since: int) -> int:
    """The last logged step until which rounding stays small, but at least the next logged one."""
    after = [int(step) for step in logged if step > since]
    return max([step for step in after if step <= since + STEADY_STEPS], default=after[0])
