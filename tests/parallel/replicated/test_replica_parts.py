"""What exactness rests on, part by part: shares drawn late, sums of shares, rows that were missed, refusals."""

import multiprocessing
import re
import threading
from datetime import timedelta
from pathlib import Path

import pytest
import torch

from manyheads.runner.answers.measure.rank.rehearsal import rehearse
from manyheads.runner.config.lookup import unavailable
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.loop.header_rows import division
from manyheads.runner.machine.addresses import free_port
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.run.tables.of_replicas import Keeping
from manyheads.runner.run.tables.writer import NullWriter
from tests.in_process import config, small, train

SMALL = ("precision=fp64", "data.batch_size=26", "data.train_samples=208", "trainer.grad_accumulation=2")


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    return train(tmp_path_factory.mktemp("parts") / "run", small(*SMALL, "trainer.max_steps=2"))


def test_shares_drawn_late_are_the_global_batch(session):
    loader = session.trainer.train
    whole = [index for batch in loader.drawn([], 3, share=0, of=1) for index in batch.ids]
    parts = [loader.drawn([], 3, share=share, of=3) for share in range(3)]
    assert sorted(index for part in parts for batch in part for index in batch.ids) == sorted(whole)
    assert sum(batch.count for part in parts for batch in part) == 26
    again = loader.drawn(parts[2], 3, share=2, of=3)
    assert again is parts[2]
    assert loader.drawn(parts[2], 3, share=1, of=3) is not parts[2]
    loader.drawn([], 3, share=0, of=1)


def test_what_shares_come_to_adds_up_to_the_batch(session):
    update, loader = session.trainer.update, session.trainer.train
    steps = update.micro_steps([])

    def row(share: int, of: int) -> torch.Tensor:
        batches = loader.drawn([], 5, share=share, of=of)
        return steps.flattened([steps(batch, last=batch is batches[-1]) for batch in batches])

    joined, whole = row(0, 3) + row(1, 3) + row(2, 3), row(0, 1)
    for part in (slice(3), slice(6, None)):  # in between is which samples they are, in halves that carry
        torch.testing.assert_close(joined[part], whole[part], rtol=1e-12, atol=1e-12)
    passed = steps.unflattened(whole)
    assert passed.samples == passed.taken.count == 26
    assert passed.taken.digest == steps.unflattened(joined).taken.digest
    statistics = update.scores.add_up([passed.observed, passed.observed])
    torch.testing.assert_close(update.scores.flatten(statistics), 2 * whole[6:])


def test_rows_that_were_missed_are_taken_from_another():
    class Written(NullWriter):
        def __init__(self):
            self.steps = []

        def step(self, row):
            self.steps.append(row["step"])

    other, written = Keeping(NullWriter()), Written()
    for step in (1, 2, 3, 4):
        other.step({"step": step})
    Keeping(written).catch_up(other.kept(), after=2)
    assert written.steps == [3, 4]


def test_it_is_started_only_by_who_says_so():
    assert "trusted_network" in (unavailable("parallel", "replicated") or "") or unavailable("launcher", "torchft")
    with pytest.raises(ConfigurationError, match="no authentication|not installed"):
        config("parallel=replicated")


@pytest.mark.needs("torchft")
@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("launcher=spawn", "launcher=spawn stops all ranks when one dies"),
        ("trainer.sam_rho=0.05", "trainer.sam_rho"),
        ("checkpoint.format=sharded", "checkpoint.format=sharded"),
        ("launcher.hang_timeout=29", "launcher.hang_timeout=29 is too short"),
    ],
)
def test_what_it_does_not_go_with_is_refused(override, message):
    with pytest.raises(ConfigurationError, match=message):
        config("parallel=replicated", "parallel.trusted_network=true", override)


@pytest.mark.needs("torchft")
def test_its_launcher_is_for_it_alone():
    with pytest.raises(ConfigurationError, match="parallel=ddp can't handle"):
        config("parallel=ddp", "launcher=torchft")


@pytest.mark.needs("torchft")
def test_an_update_that_two_made_apart_has_one_history(tmp_path, monkeypatch):
    """One committed it and was cut off; the other made it again: both are at the same step, with other weights."""
    from torchft import coordination

    from manyheads.runner.parallel.rank.replicated.group import ReplicaGroup
    from manyheads.runner.parallel.rank.replicated.membership import LIGHTHOUSE, PLACE, Membership

    place = f"127.0.0.1:{free_port('127.0.0.1')}"
    server = coordination.LighthouseServer(bind=place, min_replicas=2, join_timeout_ms=5000, quorum_tick_ms=20)
    monkeypatch.setenv(LIGHTHOUSE, f"http://{place}")
    monkeypatch.setenv(PLACE, str(tmp_path))
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    outcomes = {}

    def update(replica: int, history: int) -> None:
        members = Membership(replica, ReplicaGroup(0, 1), timeout=5, standing=dict, step=5)
        members._history = history
        members.enter(bool)
        try:
            members.compare(members.add(members.history))
            outcomes[replica] = members.commit()
        except RuntimeError as error:
            outcomes[replica] = str(error)
        members.close()

    threads = [threading.Thread(target=update, args=given) for given in ((0, 7), (1, 8))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert outcomes == {0: False, 1: "the other replicas have repeated an update that this one had already made."}
    server.shutdown()


@pytest.mark.needs("torchft")
def test_a_state_that_took_too_long_is_written_once(tmp_path):
    """Else a large one would be written again for each repetition of the update, and never be read."""
    from manyheads.runner.parallel.rank.replicated.healing import FolderTransport

    sender, receiver = FolderTransport(tmp_path, 0), FolderTransport(tmp_path, 1)
    second = timedelta(seconds=1)
    sender.send_checkpoint([1], 5, {}, second)
    assert sender.is_wanted
    sender.offer(5, lambda: {"written": 1})
    sender.disallow_checkpoint()
    sender.offer(5, lambda: {"written": 2})
    assert receiver.recv_checkpoint(0, sender.metadata(), 5, second) == {"written": 1}
    sender.offer(6, lambda: {"written": 3})
    assert [path.name for path in tmp_path.iterdir()] == ["replica_0_step_6.pt"]
    sender.forget()
    with pytest.raises(TimeoutError, match="did not arrive within 0.1 seconds"):
        receiver.recv_checkpoint(0, sender.metadata(), 6, second / 10)


@pytest.mark.needs("torchft")
def test_all_ranks_of_a_replica_gather_the_state_that_its_first_one_writes(tmp_path):
    from manyheads.runner.parallel.rank.replicated.healing import FolderTransport

    first, other = FolderTransport(tmp_path, 0), FolderTransport(tmp_path, 0, writes=False)
    gathered = []
    for transport in (other, first):
        transport.offer(5, lambda: gathered.append(1) or {"written": len(gathered)})
    assert len(gathered) == 2
    assert first.recv_checkpoint(0, other.metadata(), 5, timedelta(seconds=1)) == {"written": 2}


@pytest.mark.needs("torchft")
@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("parallel.ranks_per_replica=2", "launcher.nproc_per_node=3"), "nproc_per_node=2 or 4"),
        (("parallel.ranks_per_replica=4", "launcher.nproc_per_node=2"), "nproc_per_node=4"),
        (("parallel.ranks_per_replica=2", "launcher.hosts=[10.77.0.1:1,10.77.0.2:1]"), "must be on one machine"),
        (
            ("parallel.inside=fsdp", "launcher.nproc_per_node=2"),
            "parallel.ranks_per_replica=1. Set it to at least 2",
        ),
        (("parallel.inside=tensor", "launcher.nproc_per_node=2"), "Allowed: ddp, fsdp"),
        (
            ("parallel.inside=fsdp", "parallel.ranks_per_replica=2", "trainer.compile=default"),
            "trainer.compile without trainer.compile_units does not work with parallel.inside=fsdp",
        ),
        (
            ("parallel.inside=fsdp", "parallel.ranks_per_replica=2", "trainer.recompute=[auto]"),
            "ranks communicate within modules",
        ),
    ],
)
def test_groups_that_cannot_be_are_refused(overrides, message):
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        config("parallel=replicated", "parallel.trusted_network=true", *overrides)


@pytest.mark.needs("torchft")
@pytest.mark.tail
def test_estimates_know_what_the_ranks_of_a_replica_hold():
    replicated = ("parallel=replicated", "parallel.trusted_network=true", "launcher.nproc_per_node=4")
    fsdp = ("parallel.ranks_per_replica=2", "parallel.inside=fsdp")
    one, other = (rehearse(RunConfig.of(small(*replicated, *inside)), 0).holds for inside in ((), fsdp))
    assert 2 * other.parameters == pytest.approx(one.parameters, rel=0.1)  # rows that no two ranks can share evenly


@pytest.mark.needs("torchft")
@pytest.mark.parametrize("inside", [{}, {"ranks_per_replica": 2}, {"ranks_per_replica": 2, "inside": "fsdp"}])
def test_the_header_divides_the_batch_over_all_replicas(inside):
    from manyheads.runner.parallel.rank.replicated import replica

    here = {"rank": 2, "local_rank": 2, "world_size": 4, "device_type": "cpu"}
    parallel = replica(trusted_network=True, timeout=10, **inside, **here)
    assert parallel.total_ranks == 4
    shares = division(64, 2, parallel)
    assert re.fullmatch(r"64 = 4 (ranks|shares) x 8 samples x 2 micro-batches", shares)


def _exchange(rank: int, folder: Path) -> None:
    from manyheads.runner.parallel.rank.replicated.group import ReplicaGroup

    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=(folder / "meeting").as_uri(), rank=rank, world_size=2)
    group = ReplicaGroup(rank, 2)
    part = group.scattered(torch.arange(5.0) * (rank + 1))
    found = [group.gathered(part), group.add(torch.ones(2)), group.most([rank, -rank]), group.first(f"rank {rank}")]
    torch.save([part, *found], folder / str(rank))


@pytest.mark.needs("torchft")
def test_ranks_of_a_replica_exchange_parts(tmp_path, monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    ranks = [
        multiprocessing.get_context("forkserver").Process(target=_exchange, args=(rank, tmp_path)) for rank in (0, 1)
    ]
    for each in ranks:
        each.start()
    for each in ranks:
        each.join()
    assert [each.exitcode for each in ranks] == [0, 0]
    (one, *first), (other, *second) = (torch.load(tmp_path / str(rank)) for rank in (0, 1))
    assert torch.cat([one, other]).tolist() == [0, 3, 6, 9, 12, 0]  # of 6 places, one is padding
    for whole, added, most, said in (first, second):
        assert whole.tolist() == [0, 3, 6, 9, 12, 0]
        assert (added.tolist(), most, said) == ([2, 2], [1, 0], "rank 0")
