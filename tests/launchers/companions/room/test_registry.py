"""Claims last as long as a process of their run, however it ends, and no longer than that."""

import multiprocessing
import os
import signal
import time

import pytest
from torch.utils.data import DataLoader, Dataset

from manyheads.launchers.companions.room.registry import Registry
from manyheads.runner.errors import ConfigurationError, RunFailed
from manyheads.runner.loop.rank_process import HELD, _hold_named, hold
from tests.launchers.companions.room.conftest import added, claim, numbers

FORK = multiprocessing.get_context("fork")


def test_claims_are_listed_in_their_order_until_they_end(registry):
    first, second = added(registry, claim(run="/outputs/1")), added(registry, claim(run="/outputs/2"))
    with registry.turn() as claims:
        assert claims == [first.claim, second.claim]
    first.write(first.claim.holding(["1"]))
    with registry.turn() as claims:
        assert claims[0].devices == ("1",)
    first.end()
    assert numbers(registry) == [2]
    second.end()
    assert numbers(registry) == []
    assert list(registry.path.iterdir()) == []


def test_what_does_not_belong_there_is_ignored(registry):
    (registry.path / "notes.txt").write_text("mine")
    torn = added(registry, claim())
    torn.path.write_text('{"run": "/outp')
    assert numbers(registry) == []
    torn.end()


class Sleeping(Dataset):
    """Its loader process sleeps in the middle of a sample."""

    def __init__(self, pipe):
        self.pipe = pipe

    def __len__(self):
        return 1

    def __getitem__(self, index):
        self.pipe.send(os.getpid())
        time.sleep(600)


def rank(path, pipe):
    """A rank that waits for its loader process."""
    os.environ[HELD] = path
    _hold_named(path)
    next(iter(DataLoader(Sleeping(pipe), num_workers=1, multiprocessing_context="fork")))


@pytest.mark.processes
def test_ranks_keep_a_claim_and_their_loaders_do_not(registry):
    lease = added(registry, claim())
    pipe, theirs = FORK.Pipe()
    process = FORK.Process(target=rank, args=(str(lease.path), theirs))
    process.start()
    loader = pipe.recv()
    try:
        lease.end()  # as when the parent is killed
        assert numbers(registry) == [1]
        process.kill()
        process.join()
        os.kill(loader, 0)  # it is still there
        assert numbers(registry) == []
    finally:
        os.kill(loader, signal.SIGKILL)


@pytest.mark.processes
def test_programs_and_forks_do_not_keep_a_claim(registry):
    lease = added(registry, claim())
    sleepers = [os.posix_spawnp("sleep", ["sleep", "600"], os.environ), os.fork()]
    if not sleepers[1]:
        time.sleep(600)
        os._exit(0)
    try:
        lease.end()
        deadline = time.monotonic() + 30
        while numbers(registry) and time.monotonic() < deadline:  # until they have run for a moment
            time.sleep(0.01)
        assert numbers(registry) == []
    finally:
        for pid in sleepers:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def test_a_rank_whose_parent_has_ended_does_not_start(registry):
    lease = added(registry, claim())
    lease.end()
    numbers(registry)
    with pytest.raises(RunFailed, match="the process that has started this rank has ended"):
        _hold_named(str(lease.path))


def test_a_rank_that_locks_a_file_which_was_removed_meanwhile_does_not_start(registry, monkeypatch):
    lease = added(registry, claim())
    path = str(lease.path)

    def late(descriptor):
        lease.end()
        numbers(registry)
        hold(descriptor)

    monkeypatch.setattr("manyheads.runner.loop.rank_process.hold", late)
    with pytest.raises(RunFailed, match="has ended"):
        _hold_named(path)


def test_a_process_that_stops_during_its_turn_is_not_waited_for_for_ever(registry, monkeypatch):
    monkeypatch.setattr("manyheads.launchers.companions.room.registry.TURN_SECONDS", 0.05)
    with (
        registry.turn(),
        Registry.created() as other,
        pytest.raises(TimeoutError, match="by another process"),
        other.turn(),
    ):
        pass


def test_a_link_among_the_claims_is_refused(registry, tmp_path):
    (registry.path / "000000001-1-00000000.json").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigurationError, match="is a link"):
        numbers(registry)
