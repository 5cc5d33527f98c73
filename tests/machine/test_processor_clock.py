"""The clock of the cores, on a processor as the kernel describes it."""

import os

import pytest

from manyheads.runner.machine import processor_clock
from manyheads.runner.machine.processor_clock import clock, hot_seconds


@pytest.fixture
def cpus(tmp_path, monkeypatch):
    monkeypatch.setattr(processor_clock, "CPUS", tmp_path)
    return tmp_path


def write(file, value):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{value}\n")


def test_the_clock_of_the_core_that_runs_this(cpus):
    for core in range(os.cpu_count()):
        write(cpus / f"cpu{core}" / "cpufreq" / "scaling_cur_freq", 2_450_000)
    assert clock() == 2450


def test_the_longer_of_core_and_package_is_averaged_over_the_cores(cpus, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 3})
    for core, own, package in ((0, 500, 4000), (1, 9000, 9000), (3, 2000, 0)):
        write(cpus / f"cpu{core}" / "thermal_throttle" / "core_throttle_total_time_ms", own)
        write(cpus / f"cpu{core}" / "thermal_throttle" / "package_throttle_total_time_ms", package)
    assert hot_seconds() == 3.0


def test_a_machine_that_reports_neither(cpus):
    assert (clock(), hot_seconds()) == (0.0, 0.0)
