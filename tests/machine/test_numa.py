"""Which cores are near a rank, on machines as the kernel and the driver describe them."""

import os
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from manyheads.runner.machine import numa
from manyheads.runner.machine.numa import far_memory, is_far_from, near, nodes, parse_cpu_list


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """With parts of these cores, of which this process may use the first twelve; GPU 1 is near cores 4 to 7 and 70."""

    def pretend(*parts: str) -> None:
        for number, cores in enumerate(parts):
            (tmp_path / f"node{number}").mkdir()
            (tmp_path / f"node{number}" / "cpulist").write_text(f"{cores}\n")
        monkeypatch.setattr(numa, "NODES", tmp_path)
        monkeypatch.setattr(numa, "CORES", tmp_path)
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(12)))
        monkeypatch.setattr(os, "cpu_count", lambda: 128)
        driver = SimpleNamespace(
            nvmlDeviceGetCount=lambda: 2,
            nvmlDeviceGetHandleByIndex=lambda index: index,
            nvmlDeviceGetCpuAffinity=lambda handle, words: [0xF0, 1 << 6][:words] if handle == 1 else [],
        )
        monkeypatch.setattr(numa, "session", lambda: nullcontext(driver))

    return pretend


def test_the_kernel_s_lists():
    assert parse_cpu_list("0-3,8\n") == {0, 1, 2, 3, 8}
    assert parse_cpu_list("\n") == set()


def test_parts_without_cores_are_none(machine):
    machine("0-3", "", "4-7")
    assert nodes() == [{0, 1, 2, 3}, {4, 5, 6, 7}]


@pytest.mark.parametrize(
    ("parts", "ranks", "gpus", "expected"),
    [
        (("0-15",), 2, [None, None], [set(), set()]),
        (("0-3", "4-7"), 1, [None], [set()]),
        (("0-3", "4-7"), 2, [None, None], [{0, 1, 2, 3}, {4, 5, 6, 7}]),
        (("0-3", "8-15"), 4, [None] * 4, [{0, 1, 2, 3}] * 2 + [{8, 9, 10, 11}] * 2),
        (("0-3", "4-7"), 3, [None] * 3, [set()] * 3),
        (("0-3", "4-7"), 2, [1, 0], [{0, 1, 2, 3, 4, 5, 6, 7}, set()]),
    ],
)
def test_each_rank_has_its_share(machine, parts, ranks, gpus, expected):
    machine(*parts)
    assert len(gpus) == ranks
    assert near(gpus) == expected


MAPS = """55f4 bind:0 heap anon=4 dirty=4 N0=100 N1=50 kernelpagesize_kB=4
7f00 default file=/lib/libc.so mapped=2 N1=50 kernelpagesize_kB=4
7f40 default huge anon=1 N1=1 kernelpagesize_kB=2048
7ffe default stack
"""


@pytest.mark.parametrize(
    ("parts", "far"),
    [(("0-15", "16-31"), 2448 / 2848), (("16-31", "0-15"), 400 / 2848), (("0-3", "4-7"), 0.0), (("0-31",), 0.0)],
)
def test_memory_of_other_nodes_is_far_unless_this_process_may_use_all(machine, tmp_path, monkeypatch, parts, far):
    machine(*parts)
    (tmp_path / "maps").write_text(MAPS)
    monkeypatch.setattr(numa, "MEMORY", tmp_path / "maps")
    assert far_memory() == pytest.approx(far)


def test_a_gpu_is_far_if_none_of_its_cores_may_be_used(machine, monkeypatch):
    machine("0-3", "4-7")
    assert [is_far_from(gpu) for gpu in (0, 1)] == [False, False]
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    assert [is_far_from(gpu) for gpu in (0, 1)] == [False, True]
