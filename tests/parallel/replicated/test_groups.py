"""Replicas of several ranks, which live and die together: whatever is lost, the run is the undisturbed one."""

import os
import signal

import pytest
import torch

from tests.in_process import SMALL, rows
from tests.launchers.conftest import PROJECT, parent, survivors  # noqa: F401  # a fixture
from tests.parallel.replicated.faults import lighthouse
from tests.parallel.replicated.runs import (
    IF_TORCHFT,
    PACE,
    PACED,
    REPLICATED,
    assert_equal,
    own,
    replicated,
    undisturbed,
)

pytestmark = [IF_TORCHFT, pytest.mark.processes, pytest.mark.tail, pytest.mark.timeout(300)]

LENGTH = (*PACED, "trainer.epochs=20")
GROUPS = ("parallel.ranks_per_replica=2", "launcher.nproc_per_node=4")
HANGS = ("parallel.timeout=2", "launcher.hang_timeout=8")
WAITS = ("parallel.timeout=3", "launcher.hang_timeout=30")
INSIDE = pytest.mark.parametrize("inside", ["ddp", "fsdp"])


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return undisturbed(tmp_path_factory.mktemp("alone") / "run", *LENGTH)


def causes(folder) -> list[str]:
    return [each["cause"] for each in folder.read_result()["restarts"]]


@INSIDE
def test_undisturbed_it_is_one_process(tmp_path, alone, inside):
    folder, _ = replicated(tmp_path / "run", *LENGTH, *GROUPS, f"parallel.inside={inside}")
    assert causes(folder) == []
    assert_equal(alone, folder)


@INSIDE
@pytest.mark.parametrize("rank", range(4))
def test_a_rank_is_killed_and_its_replica_restarted(tmp_path, alone, rank, inside):
    way = (*GROUPS, f"parallel.inside={inside}")
    folder, killed = replicated(tmp_path / "run", *LENGTH, PACE, *way, kills=1, only=(rank,))
    assert killed == 1
    assert causes(folder)[0] == f"replica {rank // 2} (rank {rank}) was killed by SIGKILL"
    assert_equal(alone, folder)


@INSIDE
@pytest.mark.parametrize("replica", [0, 1])
def test_a_whole_replica_is_killed(tmp_path, alone, replica, inside):
    way = (*GROUPS, f"parallel.inside={inside}")
    folder, killed = replicated(tmp_path / "run", *LENGTH, PACE, *way, kills=1, only=(2 * replica,), together=2)
    assert killed == 1
    assert len(causes(folder)) == 1
    assert_equal(alone, folder)


@INSIDE
@pytest.mark.parametrize("rank", [0, 3])
def test_a_rank_that_is_stopped_is_killed_and_its_replica_restarted(tmp_path, alone, rank, inside):
    stop = lambda pid: os.kill(pid, signal.SIGSTOP)  # noqa: E731
    way = (*GROUPS, *HANGS, f"parallel.inside={inside}")
    folder, stopped = replicated(tmp_path / "run", *LENGTH, PACE, *way, kills=1, only=(rank,), hit=stop)
    assert stopped == 1
    assert causes(folder)[0] == f"replica {rank // 2} (rank {rank}) was killed by SIGKILL"
    assert_equal(alone, folder)


@INSIDE
def test_a_rank_that_hangs_in_its_data_is_named(tmp_path, alone, inside):
    """The other rank of its replica waits for it, but has come further."""
    data = ("data._target_=tests.parallel.replicated.faults.Hanging", f"+data.once={tmp_path / 'once'}")
    data = (*data, "+data.replica=3", "+data.after=200")
    folder, _ = replicated(tmp_path / "run", *LENGTH, *data, PACE, *GROUPS, *HANGS, f"parallel.inside={inside}")
    assert (tmp_path / "once").exists()
    assert causes(folder)[0] == "replica 1 (rank 3) was killed by SIGKILL"
    assert "__getitem__" in folder.rank_log(3).read_text()  # where it hung
    assert_equal(alone, folder)


@INSIDE
def test_the_lighthouse_is_restarted_where_it_was(tmp_path, alone, inside):
    way = (*GROUPS, *WAITS, f"parallel.inside={inside}")
    folder, killed = replicated(tmp_path / "run", *LENGTH, PACE, *way, kills=1, hit=lambda pid: lighthouse(pid).kill())
    assert killed == 1
    assert_equal(alone, folder)


@INSIDE
@pytest.mark.parametrize(("ranks", "epochs", "kills"), [(2, 60, 5), (3, 20, 2)], ids=["3x2", "2x3"])
def test_ranks_are_killed_at_random(tmp_path, inside, ranks, epochs, kills):
    length = (*PACED, f"trainer.epochs={epochs}", "checkpoint.every=2")  # some restart while one is written
    alone = undisturbed(tmp_path / "alone", *length)
    way = (f"parallel.ranks_per_replica={ranks}", "launcher.nproc_per_node=6", f"parallel.inside={inside}")
    folder, killed = replicated(tmp_path / "run", *length, PACE, *way, kills=kills)
    assert killed == kills
    assert_equal(alone, folder)


@pytest.mark.parametrize(
    "way",
    [("launcher.nproc_per_node=2",), (*GROUPS, "parallel.inside=ddp"), (*GROUPS, "parallel.inside=fsdp")],
    ids=["one rank", "ddp", "fsdp"],
)
def test_what_counts_is_not_the_number_of_samples(tmp_path, way):
    """The loss averages over what its task counts in the global batch; SGD sees the gradients' size."""
    counts = ("+loss.ignore_index=1", "optimizer=sgd", "trainer.clip_norm=inf", "trainer.epochs=10")
    alone = undisturbed(tmp_path / "alone", *PACED, *counts)
    folder, killed = replicated(tmp_path / "run", *PACED, *counts, "+data.seconds=0.01", *way, kills=1)
    assert killed == 1
    assert_equal(alone, folder)


@INSIDE
@pytest.mark.parametrize(
    "precision",
    [("precision=amp", "precision.dtype=float16", "precision.init_scale=1024"), ("precision=bf16",)],
    ids=["fp16 with a scaler", "bf16"],
)
def test_in_half_precision_too(tmp_path, precision, inside):
    model = ("model=custom", "model._target_=tests.parallel.replicated.faults.Overflowing", "+model.width=2")
    length = (*PACED, *(model if "precision=amp" in precision else ()), "trainer.epochs=10", *precision)
    alone = undisturbed(tmp_path / "alone", *length)
    way = ("+data.seconds=0.01", *GROUPS, f"parallel.inside={inside}")
    folder, killed = replicated(tmp_path / "killed", *length, *way, kills=1)
    assert killed == 1
    before, after = (torch.load(run.last_checkpoint, weights_only=True) for run in (alone, folder))
    assert after["precision"] == before["precision"]
    for name in ("step", "samples", "loss"):
        one, other = ([float(row[name]) for row in rows(run.steps)] for run in (alone, folder))
        assert other == pytest.approx(one, rel=0, abs=0.0 if name != "loss" else 0.05)


@INSIDE
def test_a_stop_stops_all_ranks_and_resume_continues(tmp_path, monkeypatch, alone, parent, inside):  # noqa: F811
    monkeypatch.setenv("PYTHONPATH", str(PROJECT))  # where ranks find the data
    plain = (*(each for each in SMALL if not each.startswith("data")), *own(LENGTH), *REPLICATED, *LENGTH, PACE)
    run = parent(tmp_path / "run", *plain, *GROUPS, f"parallel.inside={inside}", f"hydra.run.dir={tmp_path / 'run'}")
    run.wait_for_step(30)
    run.process.send_signal(signal.SIGINT)
    code, output = run.end()
    assert code == 130, output
    assert survivors(run.folder) == []
    again = parent(tmp_path / "run", command=("-m", "runner", "resume", str(tmp_path / "run")))
    code, output = again.end(120)
    assert code == 0, output
    assert_equal(alone, again.folder)
