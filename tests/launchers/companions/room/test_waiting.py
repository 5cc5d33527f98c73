"""launcher.devices=free: the queue of real claims, what it says, and what a run sees of its devices."""

import os
from pathlib import Path
from types import SimpleNamespace

import pynvml
import pytest

from manyheads.launchers.companions import Accompanied
from manyheads.launchers.companions.room import leasing
from manyheads.launchers.companions.room import registry as registry_module
from manyheads.launchers.companions.room.claims import processes
from manyheads.launchers.companions.room.leasing import leased
from manyheads.launchers.companions.room.registry import Registry
from manyheads.launchers.companions.room.waiting import _try
from manyheads.runner.errors import ConfigurationError, Interrupted, WaitExpired
from manyheads.runner.loop.rank_process import HELD
from tests.launchers.companions.room.conftest import added, claim, numbers

CORES = sorted(os.sched_getaffinity(0))


def asks(*, devices: str = "free", ranks: int = 1, wait: object = None, folder: Path = Path("/outputs/asks")):
    """A run as its companions see it, with ``ranks`` ranks of one thread."""
    launcher = {"takes_free_devices": devices == "free", "wait": wait, "nproc_per_node": ranks, "threads_per_rank": 1}
    run = SimpleNamespace(on_gpus=False, gpus_here=0, launcher=SimpleNamespace(**launcher))
    return Accompanied(SimpleNamespace(path=folder), run, signals=[])


@pytest.fixture
def all_cores(registry):
    """A lease of all cores of this process."""
    cores = tuple(map(str, CORES))
    lease = added(registry, claim(len(cores), run="/outputs/first", among=cores))
    lease.write(lease.claim.holding(cores))
    yield lease
    lease.end()


def test_a_wide_run_is_served_before_later_narrow_ones(registry):
    narrow = [added(registry, claim()) for _ in range(2)]
    assert [_try(registry, lease) for lease in narrow] == [True, True]
    wide, later = added(registry, claim(2)), added(registry, claim())
    narrow[0].end()
    assert not _try(registry, wide)
    assert not _try(registry, later)
    narrow[1].end()
    assert not _try(registry, later)
    assert _try(registry, wide)
    wide.end()
    assert _try(registry, later)
    later.end()


def test_a_ticket_of_a_process_that_ended_is_not_waited_for(registry):
    wide, later = added(registry, claim(2)), added(registry, claim())
    wide.end()
    assert _try(registry, later)
    later.end()


def test_a_run_is_bound_to_the_cores_that_it_got(registry):
    run = asks()
    with leased(run):
        assert os.sched_getaffinity(0) == {CORES[0]}
        assert Path(run.variables[HELD]).parent == registry.path
        assert numbers(registry) == [1]
    assert os.sched_getaffinity(0) == {*CORES}
    assert numbers(registry) == []


def test_a_wait_that_is_over_says_who_holds_what(registry, all_cores, tmp_path):
    with pytest.raises(WaitExpired) as error, leased(asks(wait=0.01, folder=tmp_path / "run")):
        pass
    message = str(error.value)
    assert error.value.exit_code == 5
    assert "launcher.wait=0.01 is over, and the run is still waiting for " in message
    assert "1st in the queue" in message
    assert "/outputs/first (process 1, since 1970" in message
    assert numbers(registry) == [1]  # its own is gone


def test_a_signal_ends_the_wait(registry, all_cores):
    run = asks()
    run.signals.append(15)
    with pytest.raises(Interrupted), leased(run):
        pass
    assert numbers(registry) == [1]


def test_a_run_that_does_not_wait_says_with_whom_it_shares(registry, all_cores, capsys):
    leasing.warn.cache_clear()
    with leased(asks(devices="any")):
        assert os.sched_getaffinity(0) == {*CORES}
    assert capsys.readouterr().err.startswith(
        f"warning: this run shares core {CORES[0]} with /outputs/first (process 1, since 1970"
    )


def test_alone_it_says_nothing(registry, capsys):
    with leased(asks(devices="any")):
        assert numbers(registry) == [1]
    assert capsys.readouterr().err == ""


@pytest.fixture
def forbidden(leases, monkeypatch):
    """A folder in which nothing can be created, as on a read-only disk; the superuser may write everywhere."""
    leases.mkdir(mode=0o700)
    opened = os.open

    def read_only(path, flags, *rest, **at):
        if flags & os.O_CREAT and "json" in str(path):
            raise OSError(30, os.strerror(30), str(path))
        return opened(path, flags, *rest, **at)

    monkeypatch.setattr(os, "open", read_only)
    return leases


def test_a_read_only_folder_is_said_once_and_the_run_starts(forbidden, capsys):
    leasing.warn.cache_clear()
    for _ in range(2):
        run = asks(devices="any")
        with leased(run):
            assert run.variables[HELD] == ""
    err = capsys.readouterr().err
    assert err.startswith("warning: other runs on this machine don't see which devices this one uses: ")
    assert err.count("Read-only file system") == 1


def test_a_read_only_folder_refuses_a_run_that_needs_free_devices(forbidden):
    with (
        pytest.raises(ConfigurationError, match=r"launcher.devices=free: .*leases.*Read-only file system"),
        leased(asks()),
    ):
        pass


def test_a_container_says_that_leases_are_its_own(registry, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(registry_module, "CONTAINERS", (tmp_path,))
    monkeypatch.setattr(registry_module, "SHARED", tmp_path)
    monkeypatch.delenv("MANYHEADS_LEASES")
    leasing.warn.cache_clear()
    with leased(asks()):
        assert "leases are those of this container" in capsys.readouterr().err


@pytest.fixture
def driver(monkeypatch):
    """Two GPUs, with a process of another user on the first."""
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlShutdown", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByUUID", lambda uuid: uuid)
    on = {"GPU-1": [SimpleNamespace(pid=4711)], "GPU-2": []}
    monkeypatch.setattr(pynvml, "nvmlDeviceGetComputeRunningProcesses", on.__getitem__)


def test_processes_on_gpus_are_reported_by_the_driver(driver):
    assert processes(["GPU-1", "GPU-2"]) == {"GPU-1": [4711]}


def test_a_run_that_does_not_wait_says_that_other_programs_compute_on_its_gpu(registry, driver, monkeypatch, capsys):
    monkeypatch.setattr("manyheads.runner.machine.hardware.gpu_ids", lambda: ["GPU-1", "GPU-2"])
    run = asks(devices="any")
    run.run.on_gpus, run.run.gpus_here = True, 2
    leasing.warn.cache_clear()
    with leased(run):
        assert capsys.readouterr().err == "warning: other programs compute on GPU-1: process 4711\n"
        leasing.warn.cache_clear()
        with leased(run):  # the first one's ranks may be what the driver reports
            assert "other programs" not in capsys.readouterr().err


def test_a_run_sees_only_the_gpus_that_are_free(registry, driver, monkeypatch):
    monkeypatch.setattr("manyheads.runner.machine.hardware.gpu_ids", lambda: ["GPU-1", "GPU-2"])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    run = asks()
    run.run.on_gpus, run.run.gpus_here = True, 1
    with leased(run), Registry.created() as registry, registry.turn() as claims:
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-2"
        assert claims[0].devices == ("GPU-2",)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0,1"
