"""The verdict on a repetition (identical, equal within tolerance or different) from two runs' tables and weights."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from manyheads.runner.commands.reproduce.recorded import Past, evaluated, farthest, pairs
from manyheads.runner.commands.reproduce.rerun import ReplayWindow
from manyheads.runner.machine import invocation
from manyheads.runner.report.load_run import Run
from manyheads.runner.report.rounding import ComparedValue, departure, is_early

IDENTICAL, EQUAL, DIFFERENT = "identical", "equal within tolerance", "different"


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
    windows: Callable[[], list[ReplayWindow]],
) -> ReproductionVerdict:
    """Decide whether two runs have the same results. ``tolerance``: a relative difference that rounding explains.

    ``weights``, ``windows``: make these comparisons; they take a while, so they are called only if needed.
    """
    if past.config["trainer"]["evaluate_only"]:
        return _of_evaluation(evaluated(past.result, now.result), tolerance=tolerance)
    whole = now.result["steps"] == past.result["steps"]
    if whole and (digest := now.result["weights_sha256"]) and digest == past.result["weights_sha256"]:
        return ReproductionVerdict(
            IDENTICAL, f"the final weights are the same to the last bit (sha256 {digest[:16]}...)."
        )
    found = pairs(past, now)
    if not found:
        return ReproductionVerdict(
            DIFFERENT, "the two runs have no logged step in common that covers the same updates."
        )
    rests_on: dict[str, Any] = {"values": len(found), "until_step": found[-1].step}
    if not whole and all(pair.exact for pair in found):
        return ReproductionVerdict(IDENTICAL, f"all {_told(found)} are the same to the last digit.", rests_on)
    if whole and (last := weights()):
        found.append(last)
    rests_on["largest"] = _as_dict(farthest(found))
    departed = departure(found, tolerance=tolerance)
    rests_on["departure"] = _as_dict(departed)
    other_ranks = now.result["world_size"] != past.result["world_size"]
    if departed and is_early(departed, tolerance=tolerance):
        hint = f" With another number of ranks `{invocation.command('parity')}` finds the cause." if other_ranks else ""
        return ReproductionVerdict(DIFFERENT, f"{_departs(departed)}, more than rounding explains.{hint}", rests_on)
    if departed is None and not (whole and other_ranks):
        return ReproductionVerdict(EQUAL, f"of {_told(found)} {_apart(farthest(found))}.", rests_on)
    by_windows = _by_windows(departed, windows(), tolerance=tolerance)
    return replace(by_windows, rests_on=rests_on | by_windows.rests_on)


def _by_windows(departed: ComparedValue | None, made: list[ReplayWindow], *, tolerance: float) -> ReproductionVerdict:
    """The verdict from replayed updates, if the complete curves cannot decide because training amplifies rounding."""
    curve = (
        f"the curves diverge late enough for rounding to explain it ({_departs(departed)})"
        if departed
        else "the curves stay together"
    )
    rests_on = {"windows": [{"since": window.since, "largest": _as_dict(farthest(window.found))} for window in made]}
    for window in made:
        first = departure(window.found, tolerance=tolerance)
        if first and is_early(first, tolerance=tolerance, since=window.since):
            reason = f"from the recorded weights of step {window.since} on, {_departs(first)}; {curve}."
            return ReproductionVerdict(DIFFERENT, reason, rests_on)
    checked = [pair for window in made for pair in window.found]
    if not checked:
        kind = DIFFERENT if departed else EQUAL
        return ReproductionVerdict(
            kind, f"{curve}, and the recorded run has no checkpoint left to start from.", rests_on
        )
    starts = ", ".join(str(window.since) for window in made)
    return ReproductionVerdict(
        EQUAL, f"from the recorded weights of step {starts} on {_apart(farthest(checked))}; {curve}.", rests_on
    )


def _of_evaluation(found: list[ComparedValue], *, tolerance: float) -> ReproductionVerdict:
    """The verdict on runs that only evaluated weights."""
    rests_on = {"largest": _as_dict(farthest(found))}
    if departed := departure(found, tolerance=tolerance):
        return ReproductionVerdict(DIFFERENT, f"{_departs(departed)}.", rests_on)
    if all(pair.exact for pair in found):
        return ReproductionVerdict(IDENTICAL, "all evaluation metrics are the same to the last digit.", rests_on)
    return ReproductionVerdict(EQUAL, f"{_apart(farthest(found))}.", rests_on)


def _departs(pair: ComparedValue) -> str:
    return f"{pair} ({pair.percent})"


def _apart(pair: ComparedValue | None) -> str:
    return f"the largest relative difference is {pair.relative:.2g} ({pair})" if pair else "nothing differs"


def _told(found: list[ComparedValue]) -> str:
    return f"{len(found)} values up to step {max(pair.step for pair in found)}"


def _as_dict(pair: ComparedValue | None) -> dict[str, Any] | None:
    return pair.as_dict() if pair else None
