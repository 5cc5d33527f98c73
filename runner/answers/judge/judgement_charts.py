"""The charts of a judgement: the interval after each round, and the difference in each round."""

import math
from collections.abc import Sequence

from manyheads.runner.answers.judge.answer import shown
from manyheads.runner.answers.judge.claims import Claims, Effect, least_gain, pairs
from manyheads.runner.answers.judge.question import Question
from manyheads.runner.answers.judge.terms import Aim
from manyheads.runner.answers.measure.rows import BASE, ROUND, RunRow
from manyheads.runner.answers.measure.sequential import TESTS, intervals
from manyheads.runner.charts.chart_spec import Axis, Chart, Line
from manyheads.runner.charts.colours import OTHERS

GREY, INTERVAL, BASE_FIRST, CHANGE_FIRST = OTHERS[7], OTHERS[5], OTHERS[3], OTHERS[6]
ROOM = 0.1  # margin above and below the data, as a fraction of their range
ROUNDS = Axis("round", is_whole=True)


def judgement_charts(question: Question, rows: Sequence[RunRow], claims: Claims) -> list[Chart]:
    """Two charts for each aim; none before the first round."""
    base_first = [pair.in_order[0].arm == BASE for pair in pairs(rows, ROUND)]
    charts = []
    for number, effect in enumerate(claims.effects):
        if effect.differences:
            least = least_gain(question) if number == 0 else 0.0
            charts += [_interval(number, question, effect, least), _rounds(number, effect, base_first)]
    return charts


def gain(aim: Aim) -> str:
    """The label of a difference, with its unit."""
    return f"fewer {aim.what} (%)" if aim.is_relative else f"gain in {aim.what}"


def _interval(number: int, question: Question, effect: Effect, least: float) -> Chart:
    aim, rounds = Aim(effect.on), len(effect.differences)
    looks = intervals(TESTS[question.test], effect.differences, scale=effect.scale, alpha=question.alpha_each)
    lines = [
        _line(
            "interval",
            INTERVAL,
            range(1, rounds + 1),
            [shown(aim, end) if math.isfinite(end) else math.nan for end in ends],
            mark="both",
        )
        for ends in zip(*looks, strict=True)
    ]
    lines.append(_across("no effect", 0.0, rounds, dash="dot"))
    if least > 0:
        lines.append(_across("least gain worth having", shown(aim, least), rounds, dash="dash"))
    at_last = [end for end in (effect.low, effect.high) if end is not None]
    seen = [shown(aim, difference) for difference in (*effect.differences, *at_last, 0.0, least)]
    room = ROOM * ((max(seen) - min(seen)) or 1.0)
    y = Axis(gain(aim), within=[min(seen) - room, max(seen) + room])
    return Chart(
        f"interval_{number}",
        f"Interval after each round: {effect.on}",
        "Not drawn until it is bounded; cut off where it exceeds the range of the differences.",
        ROUNDS,
        y,
        lines,
    )


def _rounds(number: int, effect: Effect, base_first: Sequence[bool]) -> Chart:
    aim, rounds = Aim(effect.on), len(effect.differences)
    values = [shown(aim, difference) for difference in effect.differences]
    lines = []
    for name, colour, wanted in (("base first", BASE_FIRST, True), ("change first", CHANGE_FIRST, False)):
        points = [(number, value) for number, value in enumerate(values, 1) if base_first[number - 1] == wanted]
        lines.append(_line(name, colour, [x for x, _ in points], [y for _, y in points], mark="points"))
    lines.append(_across("no effect", 0.0, rounds, dash="dot"))
    for end in (effect.scale, -effect.scale):
        lines.append(_across("noise floor: base against base", shown(aim, end), rounds, dash="dash"))
    return Chart(
        f"rounds_{number}",
        f"Every round: {effect.on}",
        "Which arm ran first was decided by a coin. Dashed: the typical difference between two runs of base.",
        ROUNDS,
        Axis(gain(aim)),
        lines,
    )


def _across(name: str, value: float, rounds: int, *, dash: str) -> Line:
    return _line(name, GREY, [1, max(rounds, 2)], [value, value], dash=dash)


def _line(
    name: str, colour: str, x: Sequence[float], y: Sequence[float], *, dash: str = "solid", mark: str = "line"
) -> Line:
    return Line(None, name, colour, dash, [*x], [*y], mark=mark)
