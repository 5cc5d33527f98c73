"""CPU quotas of processes: real control groups, and what is said where there are none."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from manyheads.runner.errors import Unavailable
from tests import cpu_quota
from tests.benchmarks.scaling.unified_groups import CONTROL, PROCESSES, UnifiedGroups
from tests.cpu_quota import VARIABLE, enter, quotas
from tests.needs import cannot

SECONDS = 0.4  # of spinning


@contextmanager
def quota_or_skip(cpus: float = 0.25) -> Iterator[None]:
    """Quotas; the test is skipped where this user cannot set any."""
    try:
        with quotas(cpus):
            yield
    except Unavailable:
        pytest.skip(cannot("create control groups"))


def spun(rank: int) -> float:
    """CPUs that a child process gets that computes all the time."""
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        enter(rank)
        began, used = time.perf_counter(), time.process_time()
        while time.perf_counter() - began < SECONDS:
            pass
        os.write(write, str((time.process_time() - used) / SECONDS).encode())
        os._exit(0)
    os.waitpid(child, 0)
    return float(os.read(read, 100))


def groups() -> list[Path]:
    return [path for parent in cpu_quota._parents() for path in parent.glob(f"manyheads-{os.getpid()}-*")]


def test_a_process_gets_no_more_than_its_quota_and_its_group_is_removed() -> None:
    with quota_or_skip(0.25):
        assert 0.05 < spun(0) < 0.3
        assert groups()
    assert not groups()
    assert VARIABLE not in os.environ


def test_without_quotas_entering_does_nothing() -> None:
    enter(0)
    assert not groups()


def test_groups_that_a_killed_process_left_are_removed() -> None:
    with quota_or_skip():
        (place,) = {group.parent for group in groups()}
        (child := os.fork()) or os._exit(0)
        os.waitpid(child, 0)
        left = place / f"manyheads-{child}-0"
        left.mkdir()
    with quotas(0.25):
        assert not left.exists()


def test_where_none_can_be_set_the_sentence_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_quota, "_parents", lambda: [tmp_path, tmp_path / "nowhere"])
    with pytest.raises(Unavailable, match="Run it as root"), quotas(0.5):
        raise AssertionError
    assert not [*tmp_path.iterdir()]


def test_a_process_that_may_not_be_moved_is_found_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = UnifiedGroups(tmp_path, "a", monkeypatch, open=False)
    groups.write_text(groups.root / CONTROL, "+cpu")
    with pytest.raises(Unavailable, match="The system says: .*cgroup.procs"), quotas(0.5):
        raise AssertionError


@pytest.mark.parametrize(("cpus", "least"), [(0.25, 10_000), (0.02, 50_000), (0.0001, 1_000_000)])
def test_the_second_version_has_quotas_within_the_kernels_bounds(
    cpus: float, least: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = UnifiedGroups(tmp_path, "user.slice/session.scope", monkeypatch)
    groups.write_text(groups.root / CONTROL, "+cpu")
    with quotas(cpus):
        group = cpu_quota.group("0")
        assert group.parent == groups.root  # user.slice does not pass the controller on
        quota, period = map(int, (group / "cpu.max").read_text().split())
        assert least <= period <= min(1.1 * least, 1_000_000)
        assert quota == pytest.approx(max(1000, cpus * period), abs=1)
        assert (group / "cpu.weight").read_text() == "10000"
        if (child := os.fork()) == 0:
            enter(0)
            os._exit(0)
        os.waitpid(child, 0)
        assert (group / PROCESSES).read_text() == "0"
    assert not [*groups.root.glob("manyheads-*")]
    assert (groups.root / CONTROL).read_text() == "cpu"


def test_a_controller_that_no_group_passes_on_is_passed_on_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = UnifiedGroups(tmp_path, "user.slice/app.slice/session.scope", monkeypatch)
    above = [groups.root, groups.root / "user.slice", groups.own.parent]
    with quotas(0.25):
        assert cpu_quota.group("0").parent == groups.own.parent
        assert [(each / CONTROL).read_text() for each in above] == ["cpu"] * 3
    assert [(each / CONTROL).read_text() for each in above] == [""] * 3
    assert not [*groups.root.rglob("manyheads-*")]


def test_a_group_with_processes_does_not_pass_it_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = UnifiedGroups(tmp_path, "user.slice/session.scope", monkeypatch)
    (groups.own.parent / PROCESSES).write_text("12\n")
    with quotas(0.25):
        assert cpu_quota.group("0").parent == groups.root


def test_without_the_controller_it_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container, or with version 1 for the cpu beside version 2."""
    groups = UnifiedGroups(tmp_path, "a", monkeypatch)
    (groups.root / "cgroup.controllers").write_text("hugetlb\n")
    with pytest.raises(Unavailable, match="Run it as root"), quotas(0.5):
        raise AssertionError
    assert not [*groups.root.glob("manyheads-*")]
