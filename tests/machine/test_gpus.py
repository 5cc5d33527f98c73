"""What NVIDIA's driver counts; no test machine is sure to have a GPU, so what it answers is given."""

from contextlib import nullcontext
from types import SimpleNamespace

import pynvml
import pytest

from manyheads.runner.machine import hindrances
from manyheads.runner.machine.hindrances import slowed_seconds


def driver(**calls):
    policies = {name: getattr(pynvml, name) for name in ("NVML_PERF_POLICY_POWER", "NVML_PERF_POLICY_THERMAL")}
    return SimpleNamespace(nvmlDeviceGetHandleByIndex=lambda index: index, **policies, **calls)


def test_seconds_of_a_lower_clock_are_those_of_heat_and_of_power(monkeypatch):
    times = {pynvml.NVML_PERF_POLICY_POWER: 2_000_000_000, pynvml.NVML_PERF_POLICY_THERMAL: 500_000_000}
    answer = driver(nvmlDeviceGetViolationStatus=lambda handle, policy: SimpleNamespace(violationTime=times[policy]))
    monkeypatch.setattr(hindrances, "session", lambda: nullcontext(answer))
    assert slowed_seconds(1) == 2.5


@pytest.mark.parametrize("is_there", [True, False])
def test_a_driver_that_does_not_count(monkeypatch, is_there):
    def refuse(*_):
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    answer = driver(nvmlDeviceGetViolationStatus=refuse) if is_there else None
    monkeypatch.setattr(hindrances, "session", lambda: nullcontext(answer))
    assert slowed_seconds(0) == 0
