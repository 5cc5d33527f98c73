"""What the kernel counts of clocks, disks and networks, here and in files as it writes them."""

import os

import pytest

from manyheads.runner.machine import hindrances
from manyheads.runner.machine.hindrances import Segments, clock, disk_seconds, hot_seconds, link_speed, segments

PRESSURE = """some avg10=0.33 avg60=0.68 avg300=1.05 total=70058379
full avg10=0.01 avg60=0.34 avg300=0.83 total=24058700
"""
COUNTERS = """Ip: Forwarding DefaultTTL
Ip: 1 64
Tcp: RtoAlgorithm RtoMin OutSegs RetransSegs InErrs
Tcp: 1 200 34602106 41422 0
"""


@pytest.fixture
def machine(tmp_path, monkeypatch):
    (tmp_path / "io").write_text(PRESSURE)
    (tmp_path / "snmp").write_text(COUNTERS)
    for name, speed in (("ib0", "200000"), ("down0", "-1")):
        (tmp_path / "net" / name).mkdir(parents=True)
        (tmp_path / "net" / name / "speed").write_text(f"{speed}\n")
    monkeypatch.setattr(hindrances, "PRESSURE", tmp_path / "io")
    monkeypatch.setattr(hindrances, "COUNTERS", tmp_path / "snmp")
    monkeypatch.setattr(hindrances, "INTERFACES", tmp_path / "net")


def test_what_a_machine_has_counted(machine):
    assert disk_seconds() == 70.058379
    assert segments() == Segments(sent=34602106, retransmitted=41422)


@pytest.mark.parametrize(("name", "speed"), [("ib0", 200_000), ("down0", 0), ("missing", 0), (None, 0)])
def test_the_speed_of_the_interface_that_ranks_use(machine, monkeypatch, name, speed):
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    if name is not None:
        monkeypatch.setenv("GLOO_SOCKET_IFNAME", name)
    assert link_speed() == speed


def test_a_machine_that_counts_neither_disks_nor_segments(tmp_path, monkeypatch):
    for name in ("PRESSURE", "COUNTERS", "INTERFACES"):
        monkeypatch.setattr(hindrances, name, tmp_path / "missing")
    assert (disk_seconds(), segments()) == (0.0, Segments())


@pytest.fixture
def cpus(tmp_path, monkeypatch):
    monkeypatch.setattr(hindrances, "CPUS", tmp_path)
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


def test_a_machine_that_reports_neither_clocks_nor_heat(cpus):
    assert (clock(), hot_seconds()) == (0.0, 0.0)
