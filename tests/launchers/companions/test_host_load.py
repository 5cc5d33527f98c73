"""host.csv: measured on the machine that the tests run on."""

import csv
import time

import psutil
import pytest

from manyheads.launchers.companions import load
from manyheads.launchers.companions.load import HOST_COLUMNS as COLUMNS
from manyheads.launchers.companions.load import host_load


@pytest.fixture(autouse=True)
def often(monkeypatch):
    monkeypatch.setattr(load, "EVERY_SECONDS", 0.05)


def rows(path, at_least):
    with host_load(path):
        deadline = time.monotonic() + 10
        while not (path.exists() and path.read_text().count("\n") > at_least) and time.monotonic() < deadline:
            (path.parent / "written").write_bytes(bytes(1 << 20))
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_a_busy_machine_is_seen_to_be_busy(tmp_path):
    found = rows(tmp_path / "host.csv", 6)
    assert tuple(found[0]) == COLUMNS
    assert max(float(row["cpu_percent"]) for row in found) > 50 / psutil.cpu_count()
    assert {int(row["memory_total_mb"]) for row in found} == {psutil.virtual_memory().total // 2**20}
    assert all(0 < int(row["memory_used_mb"]) < int(row["memory_total_mb"]) for row in found)
    times = [float(row["time"]) for row in found]
    assert times == sorted(times)
    assert abs(times[-1] - time.time()) < 60


def test_rates_are_differences_over_time(tmp_path, monkeypatch):
    class Network:
        bytes_recv = bytes_sent = 0

    def counted():
        Network.bytes_recv = int(time.monotonic() * 3 * 2**20)
        return Network

    monkeypatch.setattr(psutil, "net_io_counters", counted)
    monkeypatch.setattr(psutil, "disk_io_counters", lambda: None)  # as in some containers
    for row in rows(tmp_path / "host.csv", 4):
        assert float(row["network_received_mb_per_second"]) == pytest.approx(3, rel=0.2)
        assert float(row["network_sent_mb_per_second"]) == 0
        assert row["disk_read_mb_per_second"] == row["disk_written_mb_per_second"] == ""
