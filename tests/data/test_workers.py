"""Loader processes: their memory, their work ahead, and their end."""

import os
import signal
import time
from contextlib import closing
from itertools import islice

import numpy as np
import psutil
import pytest
import torch

from manyheads.runner.data.rank.workers import AHEAD
from tests.data.test_loader import assert_alike, everything
from tests.zoo import Noise


def processes() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE]


def shared_mappings() -> int:
    return sum("manyheads-batch" in mapping.path for mapping in psutil.Process().memory_maps(grouped=False))


def test_memory_is_used_again(load):
    """As many slots as there are batches ahead, one in use, and one on its way; not one for each batch."""
    before, descriptors = shared_mappings(), len(os.listdir("/proc/self/fd"))
    with closing(load(Noise(split="train", size=120), batch_size=2, num_workers=1)) as made:
        addresses = {batch.content[0].data_ptr() for epoch in range(2) for batch in made.epoch(epoch)}
        assert len(addresses) == shared_mappings() - before <= AHEAD + 2
        assert len(os.listdir("/proc/self/fd")) <= descriptors + len(addresses) + 3


class Slow(Noise):
    """Noise that takes longer than anything else does."""

    def __getitem__(self, index):
        time.sleep(0.01)
        return super().__getitem__(index)


def test_more_processes_are_started_while_they_are_too_slow(load):
    before = len(processes())
    made = load(Slow(split="train", size=100), batch_size=1, num_workers=3)
    started = [len(processes()) - before for _ in made.epoch(0)]
    assert started == sorted(started)
    assert {*started} == {1, 2, 3}
    assert_alike(everything(made.epoch(1)), everything(load(Noise(split="train", size=100), batch_size=1).epoch(1)))


def test_no_more_processes_are_started_than_needed(load):
    before = len(processes())
    made = load(Noise(split="train", size=20), batch_size=1, num_workers=3)
    for _ in made.epoch(0):
        time.sleep(0.1)  # as a model that computes, for long enough on a busy machine
        assert not made._workers._asked or made._workers._asked[0][1]._channel.poll(30)
    assert len(processes()) - before == 1


def test_batches_that_are_kept_keep_their_values(load):
    data = Noise(split="train", size=40)
    kept = list(load(data, batch_size=4, num_workers=2).epoch(0))
    for batch, other in zip(kept, load(data, batch_size=4).epoch(0), strict=True):
        assert torch.equal(batch.content[0], other.content[0])


class Ragged(Noise):
    """Whose batches have more and more rows."""

    def collate_fn(self, samples):
        rows = torch.cat([torch.full((10 * label + 1, 5), label) for _, label in samples])
        return rows, torch.tensor([label for _, label in samples])


def test_batches_may_differ_in_size(load):
    data = Ragged(split="train", size=40)
    plain, spread = (load(data, batch_size=4, num_workers=workers) for workers in (0, 2))
    for batch, other in zip(spread.epoch(0), plain.epoch(0), strict=True):
        assert torch.equal(batch.content[0], other.content[0])


class Counted(Noise):
    """Noise that leaves a file for each sample that is read."""

    folder = ""

    def __getitem__(self, index):
        with open(f"{self.folder}/{os.getpid()}", "a") as file:
            file.write(f"{index}\n")
        return super().__getitem__(index)


def read(folder) -> int:
    return sum(len(path.read_text().split()) for path in folder.iterdir())


@pytest.mark.parametrize("continues", [True, False])
def test_at_the_end_of_an_epoch_the_next_one_s_first_batches_are_built(load, tmp_path, continues):
    data = Counted(split="train", size=24)
    data.folder = str(tmp_path)
    made, plain = (load(Noise(split="train", size=24) if n == 0 else data, batch_size=4, num_workers=n) for n in (0, 1))
    made, plain = plain, made
    whole = everything(made.epoch(0, continues=continues))
    deadline_reads = 24 + continues * AHEAD * 4
    while read(tmp_path) < deadline_reads:
        pass
    following = everything(made.epoch(1))
    assert read(tmp_path) == 48
    for epoch, found in enumerate((whole, following)):
        assert_alike(found, everything(plain.epoch(epoch)))


def test_another_epoch_than_the_next_one_drops_what_was_built(load):
    made, plain = (load(Noise(split="train", size=24), batch_size=4, num_workers=n) for n in (2, 0))
    everything(made.epoch(0, continues=True))
    assert_alike(everything(made.epoch(5)), everything(plain.epoch(5)))
    next(made.epoch(6, continues=True))
    assert_alike(everything(made.epoch(6, 2)), everything(plain.epoch(6, 2)))


def test_the_next_epoch_s_first_batches_are_those_of_a_later_part_of_the_ranks(load):
    """As where another replica has left: what was built for this rank's earlier part is dropped."""
    made, plain = (load(Noise(split="train", size=24), batch_size=4, num_workers=n) for n in (1, 0))
    everything(made.epoch(0, continues=True))
    for each in (made, plain):
        each.sampler.rank, each.sampler.world_size = 1, 2
    assert_alike(everything(made.epoch(1)), everything(plain.epoch(1)))


def test_the_current_epoch_is_the_sampler_s_although_the_next_one_has_begun(load):
    made = load(Noise(split="train", size=24), batch_size=4, num_workers=1)
    batches = list(islice(made.epoch(0, continues=True), made.updates - 1))
    assert np.array_equal(made.sampler.update(0, rank=0, world_size=1)[0].indices, batches[0].ids)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_process_that_is_killed_is_named(load, number):
    made = load(Noise(split="train", size=400), batch_size=2, num_workers=2)
    before = {process.pid for process in processes()}
    batches = made.epoch(0)
    next(batches)
    started = [process for process in processes() if process.pid not in before]
    started[0].send_signal(number)
    with pytest.raises(RuntimeError, match=f"exited unexpectedly: it was ended by {signal.Signals(number).name}"):
        list(batches)
    made.close()
    assert psutil.wait_procs(started, timeout=2)[1] == []


class Failing(Noise):
    """Noise with a mistake in it."""

    def __getitem__(self, index):
        raise LookupError("no such sample")


def test_an_error_of_the_data_set_is_raised_with_its_traceback(load):
    with pytest.raises(LookupError, match=r"(?s)in loader process 0: no such sample.*in __getitem__.*no such sample"):
        everything(load(Failing(split="train"), batch_size=4, num_workers=1).epoch(0))


class Unsendable(Noise):
    """Whose batches have something in them that cannot be pickled."""

    def collate_fn(self, samples):
        return torch.zeros(len(samples)), lambda: None


def test_a_batch_that_cannot_be_sent_is_an_error(load):
    with pytest.raises(Exception, match=r"(?s)in loader process 0.*lambda"):
        next(load(Unsendable(split="train"), batch_size=4, num_workers=1).epoch(0))
