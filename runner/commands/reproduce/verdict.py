"""The verdict on a repetition (identical, equal within tolerance or different) from two runs' tables and weights."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from manyheads.runner.commands.reproduce.recorded import STEP_VALUES, Past, evaluated, farthest, pairs
from manyheads.runner.machine import invocation
from manyheads.runner.records.load_run import Run
from manyheads.runner.records.rounding import FIRST_ROWS, STEADY_STEPS, ComparedValue, departure, is_early

IDENTICAL, EQUAL, DIFFERENT = "identical", "equal within tolerance", "different"
NOISE = 10.0  # of three equal runs on a GPU, one was farther from both others than these from each other by up to 6.7


@dataclass(frozen=True)
class ReproductionVerdict:
    """``kind``: IDENTICAL, EQUAL or DIFFERENT; ``reason``: a sentence; ``rests_on``: the numbers, for result.json."""

    kind: str
    reason: str
    rests_on: dict[str, Any] = field(default_factory=dict)


def decide(
    past: Past,
    now: Run,
    *,
    tolerance: float,
    weights: Callable[[], ComparedValue | None],
    windows: Callable[[], dict[int, list[ComparedValue]]],
    second: Callable[[int], tuple[list[ComparedValue], list[ComparedValue]]] | None = None,
) -> ReproductionVerdict:
    """Decide whether two runs have the same results. ``tolerance``: a relative difference that rounding explains.

    ``weights``, ``windows``, ``second``: make these comparisons, as in ``rerun.py``; they take a while, so they are
    called only if needed. ``second``: None if runs can be repeated to the last bit.
    """
    if past.config["trainer"]["evaluate_only"]:
        return _of_evaluation(evaluated(past.result, now.result), tolerance=tolerance)
    has_all_steps = now.result["steps"] == past.result["steps"]
    curves = pairs(past, now)
    if obvious := _obvious(past, now, curves, has_all_steps=has_all_steps):
        return obvious
    rests_on = _extent(curves)
    last = weights() if has_all_steps else None
    compared = curves if last is None else [*curves, last]
    rests_on["largest"] = _as_dict(farthest(compared))
    departed = departure(compared, tolerance=tolerance)
    rests_on["departure"] = _as_dict(departed)
    other_ranks = now.result["world_size"] != past.result["world_size"]
    if departed is None and not (has_all_steps and other_ranks):
        return ReproductionVerdict(EQUAL, f"of {_told(compared)} {_apart(farthest(compared))}.", rests_on)
    if departed is None or not is_early(departed, tolerance=tolerance):
        verdict = _by_windows(departed, windows(), tolerance=tolerance, exact=second is None)
    elif second is not None and departed is not last:
        verdict = _by_noise(departed, curves, second, tolerance=tolerance)
    else:
        hint = f" With another number of ranks `{invocation.command('parity')}` finds the cause." if other_ranks else ""
        verdict = ReproductionVerdict(DIFFERENT, f"{_departs(departed)}, more than rounding explains.{hint}")
    return replace(verdict, rests_on=rests_on | verdict.rests_on)


def _obvious(past: Past, now: Run, curves: list[ComparedValue], *, has_all_steps: bool) -> ReproductionVerdict | None:
    """The verdict if the last bits decide, or nothing can be compared; None otherwise."""
    if has_all_steps and (digest := now.result["weights_sha256"]) and digest == past.result["weights_sha256"]:
        return ReproductionVerdict(
            IDENTICAL, f"the final weights are the same to the last bit (sha256 {digest[:16]}...)."
        )
    if not curves:
        return ReproductionVerdict(
            DIFFERENT, "the two runs have no logged step in common that covers the same updates."
        )
    if not has_all_steps and all(pair.exact for pair in curves):
        return ReproductionVerdict(IDENTICAL, f"all {_told(curves)} are the same to the last digit.", _extent(curves))
    return None


def _extent(curves: list[ComparedValue]) -> dict[str, Any]:
    """How many values were compared, and up to which step."""
    return {"values": len(curves), "until_step": curves[-1].step}


def _by_noise(
    departed: ComparedValue,
    curves: list[ComparedValue],
    second: Callable[[int], tuple[list[ComparedValue], list[ComparedValue]]],
    *,
    tolerance: float,
) -> ReproductionVerdict:
    """The verdict where a run differs from its own repetition, from how far two repetitions are apart.

    ``curves``: the values of the recorded run and its repetition, of which those up to the first rows are compared.
    """
    logged = [pair for pair in curves if pair.what in STEP_VALUES]
    first = [pair.step for pair in logged if pair.row < FIRST_ROWS or pair.step <= STEADY_STEPS]
    until = max([departed.step, *first])
    from_recorded, from_first = second(until)
    noise = _largest(from_first)
    nearest = min(_largest([pair for pair in curves if pair.step <= until]), _largest(from_recorded))
    rests_on = {"second_repetition": {"noise": noise, "nearest": nearest}}
    told = f"{_departs(departed)}; up to step {until}, two repetitions differ from each other by up to {noise:.2g}"
    if nearest > max(tolerance, NOISE * noise):
        return ReproductionVerdict(DIFFERENT, f"{told}, and from the recorded run by {nearest:.2g}.", rests_on)
    return ReproductionVerdict(EQUAL, f"{told}, since some GPU kernels are not deterministic.", rests_on)


def _largest(compared: list[ComparedValue]) -> float:
    pair = farthest(compared)
    return pair.relative if pair else 0.0


def _by_windows(
    departed: ComparedValue | None, replayed: dict[int, list[ComparedValue]], *, tolerance: float, exact: bool
) -> ReproductionVerdict:
    """The verdict from replayed updates, if the complete curves cannot decide because training amplifies rounding."""
    curve = (
        f"the curves diverge late enough for rounding to explain it ({_departs(departed)})"
        if departed
        else "the curves stay together"
    )
    rests_on = {
        "windows": [{"since": since, "largest": _as_dict(farthest(compared))} for since, compared in replayed.items()]
    }
    for since, compared in replayed.items():
        first = departure(compared, tolerance=tolerance)
        if first and is_early(first, tolerance=tolerance, since=since, exact=exact):
            reason = f"from the recorded weights of step {since} on, {_departs(first)}; {curve}."
            return ReproductionVerdict(DIFFERENT, reason, rests_on)
    if not (checked := [pair for compared in replayed.values() for pair in compared]):
        kind = DIFFERENT if departed else EQUAL
        return ReproductionVerdict(
            kind, f"{curve}, and the recorded run has no checkpoint left to start from.", rests_on
        )
    starts = ", ".join(map(str, replayed))
    return ReproductionVerdict(
        EQUAL, f"from the recorded weights of step {starts} on {_apart(farthest(checked))}; {curve}.", rests_on
    )


def _of_evaluation(compared: list[ComparedValue], *, tolerance: float) -> ReproductionVerdict:
    """The verdict on runs that only evaluated weights."""
    rests_on = {"largest": _as_dict(farthest(compared))}
    if departed := departure(compared, tolerance=tolerance):
        return ReproductionVerdict(DIFFERENT, f"{_departs(departed)}.", rests_on)
    if all(pair.exact for pair in compared):
        return ReproductionVerdict(IDENTICAL, "all evaluation metrics are the same to the last digit.", rests_on)
    return ReproductionVerdict(EQUAL, f"{_apart(farthest(compared))}.", rests_on)


def _departs(pair: ComparedValue) -> str:
    return f"{pair} ({pair.percent})"


def _apart(pair: ComparedValue | None) -> str:
    return f"the largest relative difference is {pair.relative:.2g} ({pair})" if pair else "nothing differs"


def _told(compared: list[ComparedValue]) -> str:
    return f"{len(compared)} values up to step {max(pair.step for pair in compared)}"


def _as_dict(pair: ComparedValue | None) -> dict[str, Any] | None:
    return pair.as_dict() if pair else None
