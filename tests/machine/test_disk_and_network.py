"""What the kernel counts of disks and network, here and in files as it writes them."""

import pytest

from manyheads.runner.machine import disk_and_network
from manyheads.runner.machine.disk_and_network import Segments, disk_seconds, link_speed, segments

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
    monkeypatch.setattr(disk_and_network, "PRESSURE", tmp_path / "io")
    monkeypatch.setattr(disk_and_network, "COUNTERS", tmp_path / "snmp")
    monkeypatch.setattr(disk_and_network, "INTERFACES", tmp_path / "net")


def test_what_a_machine_has_counted(machine):
    assert disk_seconds() == 70.058379
    assert segments() == Segments(sent=34602106, resent=41422)


@pytest.mark.parametrize(("name", "speed"), [("ib0", 200_000), ("down0", 0), ("missing", 0), (None, 0)])
def test_the_speed_of_the_interface_that_ranks_use(machine, monkeypatch, name, speed):
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    if name is not None:
        monkeypatch.setenv("GLOO_SOCKET_IFNAME", name)
    assert link_speed() == speed


def test_a_machine_that_counts_nothing(tmp_path, monkeypatch):
    for name in ("PRESSURE", "COUNTERS", "INTERFACES"):
        monkeypatch.setattr(disk_and_network, name, tmp_path / "missing")
    assert (disk_seconds(), segments()) == (0.0, Segments())
