"""gpu.csv. No test machine is sure to have a GPU: what the driver says is given, how it is recorded is ours."""

import csv
import time
from types import SimpleNamespace

import pynvml
import pytest

from manyheads.launchers.companions import load
from manyheads.launchers.companions.load import GPU_COLUMNS as COLUMNS
from manyheads.launchers.companions.load import gpu_load
from manyheads.runner.machine.gpus import THROTTLED

MB = 1024 * 1024


@pytest.fixture
def driver(monkeypatch):
    """Two GPUs: the first is busy with 30 %, the second with 60 %."""
    ended = []
    monkeypatch.setattr(load, "EVERY_SECONDS", 0.01)
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlShutdown", lambda: ended.append(True))
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", lambda index: index)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetUtilizationRates", lambda h: SimpleNamespace(gpu=30 * (h + 1)))
    memory = SimpleNamespace(used=512 * MB, total=1024 * MB)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMemoryInfo", lambda handle: memory)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetClockInfo", lambda handle, kind: 1980)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetPowerUsage", lambda handle: 612_500)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetTemperature", lambda handle, sensor: 71)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCurrentClocksThrottleReasons", lambda handle: 0x01 + 0x04 + 0x40)
    return ended


def record(path, indices):
    with gpu_load(path, indices):
        deadline = time.monotonic() + 10
        while not (path.exists() and path.read_text().count("\n") > 3) and time.monotonic() < deadline:
            time.sleep(0.01)
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_a_row_for_each_device_and_moment(tmp_path, driver):
    rows = record(tmp_path / "gpu.csv", [1, 0])
    assert tuple(rows[0]) == COLUMNS
    assert [(row["device"], row["utilisation_percent"]) for row in rows[:2]] == [("0", "60"), ("1", "30")]
    assert (rows[0]["memory_used_mb"], rows[0]["memory_total_mb"]) == ("512", "1024")
    assert (rows[0]["sm_clock_mhz"], rows[0]["power_w"], rows[0]["temperature_c"]) == ("1980", "612.5", "71")
    assert int(rows[0]["throttled_by"]) == sum(
        b for b, why in THROTTLED.items() if why in ("power cap", "hardware thermal")
    )
    assert driver == [True]


def test_a_resumed_run_goes_on_in_the_same_file(tmp_path, driver):
    first = record(tmp_path / "gpu.csv", [0])
    (tmp_path / "gpu.csv").rename(tmp_path / "before")
    (tmp_path / "gpu.csv").write_text((tmp_path / "before").read_text())
    rows = record(tmp_path / "gpu.csv", [0])
    assert len(rows) >= len(first)
    assert all(row["device"] == "0" for row in rows)


def test_no_gpus_no_file(tmp_path, driver):
    with gpu_load(tmp_path / "gpu.csv", []):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("fails", ["nvmlInit", "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetUtilizationRates"])
def test_a_driver_that_tells_nothing_is_no_error(tmp_path, driver, monkeypatch, fails):
    def refuse(*_):
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    monkeypatch.setattr(pynvml, fails, refuse)
    with gpu_load(tmp_path / "gpu.csv", [0]):
        time.sleep(0.05)


def test_what_a_gpu_does_not_tell_stays_empty(tmp_path, driver, monkeypatch):
    def refuse(*_):
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    for name in ("nvmlDeviceGetPowerUsage", "nvmlDeviceGetUtilizationRates"):  # as of a slice
        monkeypatch.setattr(pynvml, name, refuse)
    row = record(tmp_path / "gpu.csv", [0])[0]
    assert (row["utilisation_percent"], row["power_w"], row["memory_used_mb"]) == ("", "", "512")
