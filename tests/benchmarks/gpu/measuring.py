"""All rows, each in a process of its own, within the time that there is."""

import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from tests.benchmarks.gpu import by_hand, ceilings, isolated, ours, timms, tutorial
from tests.benchmarks.gpu.case import AGAIN, BY_HAND, OURS, TIMM, TUTORIAL, Case, Setup
from tests.benchmarks.gpu.report import Machine, Row
from tests.benchmarks.gpu.work import flops_per_sample

WAYS = {OURS: ours, TUTORIAL: tutorial, BY_HAND: by_hand, AGAIN: by_hand, TIMM: timms}
EXPECTED = {False: 20, True: 90}  # seconds of a row: as it is, and compiled
LONGEST = 180  # seconds that any one may take


def look_at(models: list[str], setup: Setup) -> Machine:
    """What the models need and the device can do. Raises Failed."""
    log = setup.scratch / "log"
    flops = {
        model: isolated.call(flops_per_sample, model, setup.image_size, timeout=LONGEST, log=log) for model in models
    }
    return Machine(setup.device, isolated.call(ceilings.measure, setup.device, timeout=LONGEST, log=log), flops)


def measured(cases: list[Case], setup: Setup, *, deadline: float) -> list[Row]:
    """A row for each, in their order. Measured first are the loops that are compared, as they are and compiled."""
    rows: dict[Case, Row] = {}
    for number, case in enumerate(sorted(cases, key=lambda case: (not case.is_profiled, case.compile)), 1):
        print(f"{number}/{len(cases)} {case.line}", file=sys.stderr, flush=True)
        rows[case] = row(case, setup, left=deadline - time.monotonic())
    return [rows[case] for case in cases]


def row(case: Case, setup: Setup, *, left: float) -> Row:
    """``left``: seconds until all must be done."""
    if left < EXPECTED[case.compile]:
        return Row(case, None, "not measured, the minutes are over")
    way, log, began = WAYS[case.loop].measure, setup.scratch / "log", time.monotonic()
    with open(log, "a") as file:
        print(f"--- {case}", file=file)
    with tempfile.TemporaryDirectory(dir=setup.scratch) as own:
        try:
            found = isolated.call(way, case, replace(setup, scratch=Path(own)), timeout=min(left, LONGEST), log=log)
        except isolated.Failed as failure:
            return Row(case, None, str(failure), seconds=time.monotonic() - began)
    return Row(case, found, seconds=time.monotonic() - began)
