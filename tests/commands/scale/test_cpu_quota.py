"""CPU quotas of processes: real control groups, and what is said where there are none."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from manyheads.runner.commands.scale import cpu_quota
from manyheads.runner.commands.scale.cpu_quota import VARIABLE, enter, quotas
from manyheads.runner.errors import Unavailable
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
    monkeypatch.setattr(cpu_quota, "_parents", lambda: iter([tmp_path, tmp_path / "nowhere"]))
    with pytest.raises(Unavailable, match="Run it as root") as refused, quotas(0.5):
        raise AssertionError
    assert refused.value.key == "--validate"
    assert not [*tmp_path.iterdir()]


def test_the_files_of_the_second_version_are_written(tmp_path: Path) -> None:
    for name in ("cpu.max", "cpu.weight"):
        (tmp_path / name).touch()
    assert cpu_quota._limit(tmp_path, 0.25)
    quota, period = map(int, (tmp_path / "cpu.max").read_text().split())
    assert quota == pytest.approx(0.25 * period, abs=1)
    assert 10_000 <= period < 11_000
