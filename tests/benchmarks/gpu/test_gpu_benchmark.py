"""The benchmark's parts, and some of its rows at a tiny size on the CPU."""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
import torch
from rich.console import Console
from torch import nn

from tests.benchmarks.gpu import isolated, measuring
from tests.benchmarks.gpu.case import (
    AGAIN,
    BEST,
    BY_HAND,
    NO_MODEL,
    OURS,
    PHOTOS,
    PROFILED,
    READY,
    TIMM,
    TUTORIAL,
    Case,
    Measured,
    Setup,
    cases,
)
from tests.benchmarks.gpu.ceilings import of_precision
from tests.benchmarks.gpu.device import Stopwatch
from tests.benchmarks.gpu.parts import PARTS, differences, parts
from tests.benchmarks.gpu.report import WIDTH, Machine, Row, as_json, overheads, table
from tests.benchmarks.gpu.steps import Profile, Steps, summed
from tests.benchmarks.gpu.work import Traffic, flops_per_sample
from tests.composing import composed
from tests.conftest import execute
from tests.tail import tail

MODELS = ["resnet50", "vit_b_16"]


@pytest.fixture
def setup(tmp_path) -> Setup:
    sizes = {"batch_size": 4, "image_size": 32, "steps": 2, "cores": 2}
    return Setup(device="cpu", photos=tmp_path / "photos", scratch=tmp_path, **sizes)


def test_operations_are_counted_as_papers_count_them():
    """4.09 and 17.56 G multiplications and additions forward; backward twice that, without the images' gradient."""
    assert flops_per_sample("resnet50", 224) == pytest.approx(3 * 2 * 4.09e9, rel=0.02)
    assert flops_per_sample("vit_b_16", 224) == pytest.approx(3 * 2 * 17.56e9, rel=0.01)


def moved(work) -> int:
    with Traffic() as traffic:
        work()
    return traffic.bytes


def test_bytes_are_those_that_each_operation_is_given_and_returns():
    one, other = torch.zeros(10, 10), torch.zeros(10, 10)  # 400 bytes each
    assert moved(lambda: one + other) == 1200
    assert moved(lambda: one.add_(other)) == 1200
    assert moved(lambda: one @ other) == 1200
    assert moved(lambda: torch._foreach_add_([one, one.clone()], [other, other])) == 2 * 1200 + 800
    assert moved(lambda: one.view(100).t()) == moved(lambda: torch.empty(1000)) == 0
    assert moved(lambda: one.half()) == 600


def test_a_backward_pass_moves_bytes_too():
    layer = nn.Linear(10, 10, bias=False)
    images = torch.zeros(10, 10)
    forward = moved(lambda: layer(images))
    assert moved(lambda: layer(images).sum().backward()) >= 2 * forward


@pytest.mark.parametrize("full", [False, True])
def test_no_row_is_measured_twice(full):
    rows = cases(MODELS, full=full)
    assert len(rows) == len(set(rows))
    for model in MODELS:
        own = [case for case in rows if case.model == model and case.loop == OURS and case.data == READY]
        assert {case.precision for case in own} == {"fp32", "tf32", "amp", "bf16"}
        assert {case.compile for case in own} == {False, True}
    assert sum(case.compile for case in rows) == (16 if full else 2)
    assert {case.loop for case in rows if case.data == PHOTOS} == {TUTORIAL, OURS}


def test_the_clock_starts_when_no_loader_is_ahead_and_there_are_samples_until_it_stops(setup):
    for case in cases(MODELS, full=False):
        first, last = setup.span(case)
        assert first >= (setup.workers(case) if case.data == PHOTOS else 1)
        assert last - first >= max(setup.steps, setup.workers(case) if case.data == PHOTOS else 0)
        assert setup.batch_size * (setup.end(case) + 1) < setup.longest
        if case.loop == OURS and case.data == READY:
            log_every = composed().trainer.log_every
            assert first > log_every  # what the first row loads is not what later ones cost
            assert setup.end(case) - last in (0, log_every)


def test_the_clock_s_seconds_are_those_of_its_steps_and_a_profile_comes_after_them(setup, monkeypatch):
    now = [100.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    case = Case(OURS, "resnet18", READY, BEST, channels_last=True)
    watch = Stopwatch(case, setup)

    def batches():
        for number in range(1, watch.end + 1):
            now[0] += 0.001
            yield number

    for number in watch.waiting(batches()):
        now[0] += 0.004 if number <= watch.last else 7.0
        torch.zeros(10).add_(1)
        assert watch(number) is False
    found = watch.measured()
    assert found.seconds_per_step == pytest.approx(0.005)
    assert found.samples_per_second == pytest.approx(4 / 0.005)
    steps = found.steps
    assert (len(steps.opening), len(steps.device)) == (watch.first - 1, setup.steps)
    assert steps.opening + steps.device + steps.host == pytest.approx([5.0] * (watch.first - 1 + 2 * setup.steps))
    assert steps.loading == pytest.approx([1.0] * setup.steps)
    assert steps.launching == pytest.approx(5.0)
    assert steps.processor > 0
    assert steps.profile.by_name["aten::add_"] > 0
    assert steps.profile.kernels >= 2
    plain = Stopwatch(replace(case, precision="fp32"), setup)
    assert plain.end == watch.last == watch.end - PROFILED


def test_a_device_is_idle_while_nothing_runs_on_any_stream():
    events = [
        {"name": "b", "ts": 3000, "dur": 2000},  # on another stream, beside a
        {"name": "a", "ts": 1000, "dur": 3000},
        {"name": "a", "ts": 6000, "dur": 4000},
        {"name": "b", "ts": 7000, "dur": 1000},
        {"name": "a", "ts": 13000, "dur": 1000},
    ]
    found = summed(events, 2)
    assert found == Profile(busy=4.5, idle=2.0, longest=3.0, kernels=2.5, by_name={"a": 4.0, "b": 1.5})


def profiled(loop: str, *, copies: float) -> Row:
    profile = Profile(53.0, 0.5, 2.0, 1200, {"conv": 50.0 + copies / 100, "copy": copies})
    steps = Steps([70.0, 54.0], [54.0, 54.0, 57.0], [25.0] * 3, [0.1] * 3, 60.0, 27.0, profile)
    return Row(Case(loop, "resnet50", READY, BEST, channels_last=True), Measured(0.055, 4654.0, steps=steps))


def test_steps_are_shown_side_by_side_with_what_ours_has_more_of():
    found = [profiled(BY_HAND, copies=1.0), profiled(OURS, copies=2.5), profiled(AGAIN, copies=1.0)]
    text = StringIO()
    Console(file=text, width=WIDTH).print(parts([*found, *rows()]))
    shown = text.getvalue()
    assert all(column in shown for column in PARTS)
    values = ("55.00", "54.00", "16.00", "53.00", "0.50", "2.00", "1,200", "27.00", "0.10", "60.00")
    assert shown.count("by hand") == 2
    (ours,) = (line for line in shown.splitlines() if "manyheads" in line)
    assert tuple(word for word in ours.split() if word[0].isdigit()) == values
    assert [*differences(found)] == ["resnet50: beside the loop by hand, a step of manyheads has +1.50 ms of copy"]
    assert overheads(found, of=AGAIN) == {"resnet50": 1.0}


def test_a_ceiling_is_of_the_same_numbers():
    assert [of_precision(p, "cuda", is_tutorial=False) for p in ("fp32", "tf32", "amp", "bf16")] == [
        "fp32",
        "tf32",
        "fp16",
        "bf16",
    ]
    assert of_precision("fp32", "cuda", is_tutorial=True) == "tf32"
    assert of_precision("amp", "cpu", is_tutorial=False) == "bf16"


def rows() -> list[Row]:
    base = Case(TUTORIAL, "resnet50", READY, "fp32")
    ours = Case(OURS, "resnet50", READY, BEST, channels_last=True)
    failed = Case(OURS, "resnet50", READY, "fp32", channels_last=True, compile=True)
    loader = Case(OURS, NO_MODEL, PHOTOS, "fp32")
    return [
        Row(base, Measured(0.5, 200.0, 10 * 10**9)),
        Row(ours, Measured(0.1, 1000.0, 5 * 10**9, 3 * 10**11)),
        Row(failed, None, "out of memory " + "and a long story " * 20),
        Row(loader, Measured(0.01, 5000.0)),
    ]


MACHINE = Machine("cuda", {"fp32": 5e13, "tf32": 4e14, "fp16": 8e14, "bf16": 8e14, "bytes": 4e12}, {"resnet50": 2.4e10})


def test_shares_are_of_what_was_measured():
    content = as_json(rows(), MACHINE)
    base, ours, failed, loader = content["rows"]
    assert base["share_of_flops"] == pytest.approx(2.4e10 * 200 / 4e14)
    assert ours["share_of_flops"] == pytest.approx(2.4e10 * 1000 / 8e14)
    assert ours["share_of_bytes"] == pytest.approx(3e11 / 0.1 / 4e12)
    assert (base["share_of_bytes"], loader["share_of_flops"], loader["speed_up"]) == (None, None, None)
    assert (base["speed_up"], ours["speed_up"], failed["speed_up"]) == (1, 5, None)
    assert failed["reason"].startswith("out of memory")
    json.dumps(content)


def test_the_table_fits_and_says_why_a_row_is_not_there():
    text = StringIO()
    Console(file=text, width=200).print(table(rows(), MACHINE))
    lines = text.getvalue().splitlines()
    assert max(len(line.rstrip()) for line in lines) <= WIDTH
    assert "manyheads bf16 channels_last" in text.getvalue()
    assert "out of memory" in text.getvalue()
    assert any("1,000" in line and "5.00" in line and "5.0" in line for line in lines)


def test_what_is_called_apart_returns_or_says_why_not(tmp_path):
    def fails():
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate ...")

    def is_killed():
        os.kill(os.getpid(), 9)

    log = tmp_path / "log"
    assert isolated.call(lambda a, b: a + b, 2, 3, timeout=60, log=log) == 5
    for function, why in ((fails, "out of memory"), (is_killed, "its process was killed by SIGKILL")):
        with pytest.raises(isolated.Failed, match=why):
            isolated.call(function, timeout=60, log=log)
    with pytest.raises(isolated.Failed, match="ZeroDivisionError: division by zero"):
        isolated.call(lambda: 1 / 0, timeout=60, log=log)
    assert "division by zero" in log.read_text()


def test_what_takes_too_long_ends_with_all_that_it_started(tmp_path):
    def hangs():
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        (tmp_path / "pid").write_text(str(child.pid))
        time.sleep(600)

    with pytest.raises(isolated.Failed, match=r"took more than 3 s"):
        isolated.call(hangs, timeout=3, log=tmp_path / "log")
    status = Path(f"/proc/{(tmp_path / 'pid').read_text()}/stat")
    for _ in range(100):
        if not status.exists() or status.read_text().split()[2] == "Z":
            return
        time.sleep(0.1)
    raise AssertionError("its own child is still there")


def test_what_does_not_fit_into_the_time_is_a_row_that_says_so(setup, monkeypatch):
    monkeypatch.setattr(isolated, "call", lambda *_, **__: Measured(1, 1))
    wanted = cases(MODELS, full=False)
    for seconds, left_out in ((1000, set()), (50, {True}), (5, {False, True})):
        found = measuring.measured(wanted, setup, deadline=time.monotonic() + seconds)
        assert [row.case for row in found] == wanted
        assert {row.case.compile for row in found if row.reason == "not measured, the minutes are over"} == left_out


def test_the_loops_that_are_compared_come_first_then_compiled(setup, monkeypatch):
    order: list[Case] = []
    monkeypatch.setattr(isolated, "call", lambda way, case, *_, **__: order.append(case) or Measured(1, 1))
    measuring.measured(cases(MODELS, full=False), setup, deadline=time.monotonic() + 1000)
    loops = [(case.loop, case.compile) for case in order if case.model == "vit_b_16"]
    compared = [(BY_HAND, False), (TIMM, False), (OURS, False), (AGAIN, False), (OURS, True)]
    assert loops[:5] == compared
    assert all(case.is_profiled for case in order[: 2 * 5 + 1])  # ResNet-50 in both memory formats


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "count"),
    [
        # One of each kind: our loop, the tutorial's, and a loader alone.
        tail("JPEG tutorial fp32,ready manyheads fp32 channels_last,ready timm,(loader) JPEG manyheads", 4),
        tail("JPEG,ready manyheads fp32", 7),
    ],
)
def test_the_command(tmp_path, words, count):
    sizes = ("--models", "resnet18", "--batch-size", "4", "--steps", "1", "--rows", words)
    done = execute(sys.executable, "-m", "tests.benchmarks.gpu", "--device", "cpu", *sizes, cwd=tmp_path, timeout=280)
    assert done.code == 0, done.err
    (path,) = tmp_path.glob("outputs/benchmarks/*_gpu.json")
    rows = json.loads(path.read_text())["rows"]
    assert len(rows) == count
    for row in rows:
        assert "reason" not in row, path.with_suffix(".log").read_text()
        assert row["samples_per_second"] == pytest.approx(4 / row["seconds_per_step"])
        assert bool(row["bytes_per_step"]) == (row["loop"] == OURS and row["model"] != NO_MODEL)
        assert bool(row["steps"] and row["steps"]["profile"]["kernels"]) == (row["loop"] == TIMM)
        assert row["seconds"] > 0
    assert "resnet18   JPEG    tutorial fp32" in done.out


@pytest.mark.slow
@pytest.mark.tail
def test_without_a_gpu_the_command_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    done = execute(sys.executable, "-m", "tests.benchmarks.gpu", cwd=tmp_path)
    assert done.code == 1
    assert "no NVIDIA GPU" in done.err
    assert "--device cpu" in done.err


def test_the_loop_by_hand_is_what_ours_is_held_against():
    hand, ours = (Case(loop, "resnet50", READY, BEST, channels_last=True) for loop in (BY_HAND, OURS))
    assert {hand, ours} <= {*cases(MODELS, full=False)}
    found = [
        Row(hand, Measured(0.1, 1.0)),
        Row(ours, Measured(0.102, 1.0)),
        Row(replace(ours, compile=True), None, "-"),
    ]
    assert overheads(found) == {"resnet50": pytest.approx(1.02)}
    timm = Row(replace(hand, loop=TIMM), Measured(0.2, 1.0))
    assert overheads([*found, timm], of=TIMM) == {"resnet50": pytest.approx(0.51)}


def test_without_convolutions_a_tutorial_s_fp32_is_no_tf32():
    row = Row(Case(TUTORIAL, "vit_b_16", READY, "fp32"), Measured(1.0, 100.0))
    machine = replace(MACHINE, flops={"vit_b_16": 1e11})
    assert machine.share_of_flops(row) == 1e13 / 5e13
