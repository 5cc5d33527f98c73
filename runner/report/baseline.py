"""Chooses the baselines of rows, and computes speed-up and scaling efficiency."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.records.keys import grouped, parsed
from manyheads.runner.report.fairness import differing, divide, is_swept
from manyheads.runner.report.rows import ReportRow, is_chosen


@dataclass(frozen=True)
class BaselineRule:
    """How baselines are chosen. ``keys``: those in which a row must agree with its baseline.

    ``wanted``: the values that the user named; ``caption``: a sentence for below the table.
    """

    keys: list[str]
    wanted: dict[str, str]
    number: str | None
    caption: str


def make_rule(rows: Sequence[ReportRow], swept: Sequence[str], named: str | None, *, strict: bool) -> BaselineRule:
    """The rule for choosing baselines. Raises ConfigurationError if no row is the ``named`` one.

    ``strict``: keys that were not swept must agree.
    """
    done = [row for row in rows if row.state == "completed" and row.first.run.config]
    keys = differing(done)
    if named is not None:
        number, wanted = _parse(named, rows)
        chosen = [key for key in keys if is_swept(key, swept) and (number is not None or is_swept(key, wanted))]
        keys = [key for key in keys if key not in chosen]
        return BaselineRule(keys, wanted, number, _caption(f"--baseline {named}", keys))
    groups = set(divide(done, keys).values())
    if len(groups) == len(done) > 1:  # each alone in its group: the swept keys are being compared
        keys = [key for key in keys if strict and not is_swept(key, swept)]
    first = next((f"parallel={_backend(row)}" for row in done if _is_plain(row)), "the first completed job")
    return BaselineRule(keys, {}, None, _caption(first, keys))


def _caption(what: str, keys: Sequence[str]) -> str:
    names = [key.removesuffix(".name") for key in keys]
    same = f" with the same {' and '.join(filter(None, [', '.join(names[:-1]), *names[-1:]]))}, where one exists"
    return f"Speed-up and efficiency are relative to {what}{same if keys else ''}."


def _parse(named: str, rows: Sequence[ReportRow]) -> tuple[str | None, dict[str, str]]:
    number = next(
        (row.number for row in rows for job in row.numbers if named in (job, job.rpartition("/")[2])),
        None,
    )
    wanted = {} if number is not None else parsed(named.split(","))
    matches = [row for row in rows if (row.number == number if number is not None else is_chosen(row, wanted))]
    if not matches or (number is None and "=" not in named):
        raise ConfigurationError.at(
            "--baseline", named, ": there is no such job. Give the number of a job, or values such as parallel=single."
        )
    if all(row.state != "completed" for row in matches):
        raise ConfigurationError.at("--baseline", named, f": that job is {matches[0].state}. Name one that completed.")
    return number, wanted


def compare_speed(rows: Sequence[ReportRow], rule: BaselineRule) -> list[ReportRow]:
    """The rows, each with its group and, if it completed, its speed-up over a baseline of that group.

    Efficiency is samples/s per rank (per device of DataParallel), relative to the baseline's.
    """
    groups = divide(rows, rule.keys)
    rows = [replace(row, group=groups[row.number]) for row in rows]
    members = grouped((row for row in rows if row.state == "completed" and row.measures.seconds), lambda row: row.group)
    nearest = {group: _nearest_of(_baselines(done, rule)) for group, done in members.items()}
    return [_against(row, nearest[row.group](row) if row.group in nearest else None) for row in rows]


def _baselines(done: Sequence[ReportRow], rule: BaselineRule) -> list[ReportRow]:
    """The rows of a group that may serve as baselines."""
    if rule.number is not None:
        return [row for row in done if row.number == rule.number]
    if rule.wanted:
        return [row for row in done if is_chosen(row, rule.wanted)]
    first = next((row for row in done if _is_plain(row)), done[0])
    alike = [row for row in done if _backend(row) == _backend(first)]
    return alike if len(alike) < len(done) else [first]


def _nearest_of(baselines: Sequence[ReportRow]) -> Callable[[ReportRow], ReportRow | None]:
    """A function of a row: the first of the baselines that share most swept values with it.

    They share all of them, if these were combined. Only baselines that share some are counted, of thousands.
    """
    first: dict[tuple[str, ...], ReportRow] = {}
    for baseline in baselines:
        first.setdefault(_values(baseline), baseline)
    distinct, sharing = [*first.values()], defaultdict[tuple[int, str], list[int]](list)
    for number, values in enumerate(first):
        for value in enumerate(values):
            sharing[value].append(number)

    def nearest(row: ReportRow) -> ReportRow | None:
        if (values := _values(row)) in first or not first:
            return first.get(values)
        shared = Counter(number for value in enumerate(values) for number in sharing.get(value, ()))
        return distinct[min(shared, key=lambda number: (-shared[number], number), default=0)]

    return nearest


def _values(row: ReportRow) -> tuple[str, ...]:
    """A row's swept values, apart from the launcher's."""
    return tuple(value for key, value in row.values.items() if not key.startswith(("parallel", "launcher")))


def _backend(row: ReportRow) -> object:
    return row.first.run.config.get("parallel.name")


def _is_plain(row: ReportRow) -> bool:
    """Whether others are compared with the row's backend."""
    return row.first.run.declared("parallel").is_baseline


def _against(row: ReportRow, baseline: ReportRow | None) -> ReportRow:
    measured = row.measures
    if baseline is None or row.state != "completed" or not measured.seconds:
        return row
    base = baseline.measures
    efficiency = None
    if measured.throughput and base.throughput and measured.devices and base.devices:
        efficiency = measured.throughput / measured.devices / (base.throughput / base.devices)
    assert base.seconds is not None
    return replace(row, baseline=baseline.number, speed_up=base.seconds / measured.seconds, efficiency=efficiency)
