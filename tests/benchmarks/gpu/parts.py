"""The steps of the loops that are compared, side by side: what ours takes longer for, if it does."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table

from tests.benchmarks.gpu.case import BY_HAND, OURS
from tests.benchmarks.gpu.steps import Profile, Steps

if TYPE_CHECKING:
    from tests.benchmarks.gpu.report import Row

PARTS = {
    "step": "on the device, on average",
    "median": "the middle one of these steps",
    "first": "all steps before the clock started, beyond as many middle ones: what is loaded and allocated once",
    "busy": "in steps that are profiled: something ran on the device",
    "idle": "nothing did",
    "longest": "idle at once, in all of these steps",
    "kernels": "operations on the device, copies too",
    "launch": "of the host for a step to which the device waits",
    "load": "of the host until a batch is there",
    "CPU": "of all threads of the process, not of its loader processes",
}
LEAST = 0.03  # ms of a difference that is shown
MOST = 5


def parts(rows: list["Row"]) -> Table:
    found = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    found.add_column("loop", overflow="fold")
    for column in PARTS:
        found.add_column(column, justify="right")
    previous = None
    for row in rows:
        if row.measured is None or row.measured.steps is None:
            continue
        if row.case.model != previous:
            found.add_row(row.case.model, style="bold")
        found.add_row(row.case.options, *_cells(row.measured.steps))
        previous = row.case.model
    return found


def _cells(steps: Steps) -> list[str]:
    count, profile = len(steps.device), steps.profile
    first = sum(steps.opening) - steps.median * len(steps.opening)
    found = [sum(steps.device) / count, steps.median, first]
    found += [profile.busy, profile.idle, profile.longest] if profile else []
    kernels = [f"{profile.kernels:,.0f}"] if profile else [""] * 4
    rest = [steps.launching, sum(steps.loading) / count, steps.processor]
    return [*(f"{each:.2f}" for each in found), *kernels, *(f"{each:.2f}" for each in rest)]


def differences(rows: list["Row"]) -> Iterator[str]:
    """Lines with the kernels that our steps spend more or less time in than those by hand."""
    profiles = {row.case: steps.profile for row in rows if row.measured and (steps := row.measured.steps)}
    for case, hand in profiles.items():
        ours = profiles.get(replace(case, loop=OURS))
        if case.loop == BY_HAND and hand and ours:
            found = [f"{more:+.2f} ms of {name}" for name, more in _by_name(hand, ours)]
            yield f"{case.model}: beside the loop by hand, a step of manyheads has {'; '.join(found) or 'nothing else'}"


def _by_name(one: Profile, other: Profile) -> list[tuple[str, float]]:
    names = {*one.by_name, *other.by_name}
    more = {name: other.by_name.get(name, 0.0) - one.by_name.get(name, 0.0) for name in names}
    return sorted(((n, m) for n, m in more.items() if abs(m) >= LEAST), key=lambda each: -abs(each[1]))[:MOST]
