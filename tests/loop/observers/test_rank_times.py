"""Which ranks are slow, by times that are made up; and a run with one that is."""

import re

import pytest
import torch

from manyheads.launchers.launch import launch, prepare
from manyheads.runner.errors import Unavailable
from manyheads.runner.loop.meter import NAMES, Sums
from manyheads.runner.loop.observers import rank_times
from manyheads.runner.loop.observers.rank_times import NOTED, RankTimes
from manyheads.runner.machine.hindrances import CoreTime, Hindrances
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.run.slow_ranks import slow_in_words
from tests.cpu_quota import quotas
from tests.in_process import small
from tests.planted import SlowDisk
from tests.slow_disk import slow_disk

USUAL = Hindrances(CoreTime(cores=2, ready=0.1, throttled=0.0))


def interval(*ranks: dict[str, float]) -> torch.Tensor:
    """Sums of an exchange: by rank, seconds of data, compute and communication; all take as long as the slowest."""
    longest = max(sum(each.values()) for each in ranks)
    sums = []
    for each in ranks:
        waited = longest - sum(each.values())
        own = Sums(seconds=longest, data_seconds=each.get("data", 0.0))
        own.take({"sampled_compute": each["compute"] / 10, "sampled_communication": waited / 10})
        sums.append([getattr(own, name) for name in NAMES])
    return torch.tensor(sums, dtype=torch.float64)


def found(times: RankTimes, *hindrances: Hindrances) -> list[dict]:
    return times.result(hindrances or [USUAL] * len(times.seconds))["slow_ranks"]


def test_a_rank_that_computes_longer_is_named_and_reported_once():
    times = RankTimes(3, lambda value: [value], print)
    said = [times.add(interval({"compute": 2.0}, {"compute": 4.0}, {"compute": 2.1})) for _ in range(NOTED + 2)]
    assert (
        said
        == [None] * (NOTED - 1) + ["warning: rank 1 is slow, mostly computing, and the others wait for it"] + [None] * 2
    )
    (slow,) = found(times)
    assert (slow["rank"], slow["intervals"], slow["of"], slow["part"]) == (1, 5, 5, "compute")
    assert slow["seconds"] == pytest.approx(5 * 1.9)
    assert slow_in_words([slow]) == "rank 1, always (in 5 of 5 intervals, for 9.5 s), mostly computing"
    assert times.result([USUAL] * 3)["rank_seconds"]["communication"] == pytest.approx([10.0, 0.0, 9.5])


def test_a_slow_loader_is_told_from_slow_computing():
    times = RankTimes(2, lambda value: [value], print)
    for _ in range(3):
        times.add(interval({"compute": 2.0, "data": 0.1}, {"compute": 2.0, "data": 2.0}))
    assert slow_in_words(found(times)).endswith("mostly waiting for data: its loader is slower")


def test_once_is_not_always():
    times = RankTimes(2, lambda value: [value], print)
    for number in range(8):
        times.add(interval({"compute": 2.0}, {"compute": 6.0 if number == 3 else 2.0}))
    assert slow_in_words(found(times)) == "rank 1, once (in 1 of 8 intervals, for 4.0 s), mostly computing"


def test_equal_ranks_and_short_runs_have_none():
    times = RankTimes(2, lambda value: [value], print)
    assert times.add(interval({"compute": 1.0}, {"compute": 0.2})) is None  # too short to judge
    times = RankTimes(2, lambda value: [value], print)
    for _ in range(5):
        times.add(interval({"compute": 2.0}, {"compute": 2.4}))
    assert found(times) == []


def test_the_cause_is_that_of_the_slow_rank():
    times = RankTimes(3, lambda value: [value], print)
    for _ in range(4):
        times.add(interval({"compute": 2.0}, {"compute": 2.0}, {"compute": 5.0}))
    own = USUAL._replace(core=CoreTime(2, 5.0, 6.0))
    assert [each["cause"] for each in found(times, USUAL, USUAL, own)] == ["its CPU quota was used up for 6.0 s"]


@pytest.mark.processes
@pytest.mark.tail
@pytest.mark.parametrize("what", ["computing", "waiting for data"])
def test_a_planted_slow_rank_is_found(tmp_path, what):
    slow = {
        "computing": ("model=custom", "model._target_=tests.planted.Dawdling", "+model.rank=1"),
        "waiting for data": (
            "data=custom",
            "data._target_=tests.planted.SlowData",
            "+data.size=640",
            "data.num_workers=0",
        ),
    }[what]
    folder = RunFolder(tmp_path)
    given = ("parallel=ddp", "launcher.nproc_per_node=2", "trainer.epochs=99", "trainer.max_time=11", "logger=[]")
    folder.write_config(small(*given, *slow))
    launch(prepare(folder))
    found, *_ = folder.read_result()["slow_ranks"]
    assert found["rank"] == 1
    assert found["intervals"] >= 0.5 * found["of"] > 0
    assert f"warning: rank 1 is slow, mostly {what}" in folder.log.read_text()
    assert slow_in_words([found]).startswith("rank 1, always")
    assert rank_times.INTERVAL * found["of"] <= 12


@pytest.mark.processes
@pytest.mark.tail
def test_a_rank_with_half_a_core_is_found_and_the_cause_named(tmp_path):
    folder = RunFolder(tmp_path)
    throttled = (
        "model=custom",
        "model._target_=tests.planted.Throttled",
        "data.image_size=32",
        "data.train_samples=640",
    )
    given = ("parallel=ddp", "launcher.nproc_per_node=2", "trainer.epochs=99", "trainer.max_time=12", "logger=[]")
    folder.write_config(small(*given, *throttled, "data.image_size=32", "data.train_samples=640"))
    try:
        with quotas(0.3):
            launch(prepare(folder))
    except Unavailable as reason:
        pytest.skip(str(reason))
    found, *_ = folder.read_result()["slow_ranks"]  # on busy cores the other one may be slow for once
    assert (found["rank"], found["part"]) == (1, "compute")
    assert re.fullmatch(r"its CPU quota was used up for [\d.]+ s", found["cause"])


@pytest.mark.processes
@pytest.mark.tail
def test_a_rank_whose_disk_is_slow_is_found_and_the_disk_named(tmp_path):
    folder, file = RunFolder(tmp_path / "run"), tmp_path / "file"
    file.write_bytes(bytes(SlowDisk.SIZE))
    with slow_disk(tmp_path, rate=4_000_000) as group:
        given = ("parallel=ddp", "launcher.nproc_per_node=2", "trainer.epochs=99", "trainer.max_time=11", "logger=[]")
        data = ("data=custom", "data._target_=tests.planted.SlowDisk", "+data.size=640", "data.num_workers=0")
        folder.write_config(small(*given, *data, f"+data.path={file}", f"+data.control={group}"))
        launch(prepare(folder))
    found, *_ = folder.read_result()["slow_ranks"]
    assert (found["rank"], found["part"]) == (1, "data")
    assert re.fullmatch(r"its loader is slower, and processes on its machine waited [\d.]+ s for disks", found["cause"])
