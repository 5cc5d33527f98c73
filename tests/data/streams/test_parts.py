"""Streams with a state, and in parts: what is read, by whom, and from where after a resume."""

from functools import partial
from typing import Any

import pytest
import torch

from manyheads.runner.data.rank.streams.parts import build_stream
from manyheads.runner.errors import ExitCode
from manyheads.runner.parallel.rank.parallel import Parallel
from manyheads.runner.run.run_folder import RunFolder
from tests.data.streams import kept
from tests.in_process import opened, rows, small, train, weights
from tests.loop.test_session import killed_after
from tests.optional_wings import audit
from tests.parallel.together import train_together

ALONE = Parallel(rank=0, local_rank=0, world_size=1, device_type="cpu")
IMAGES = (f"data._target_={kept.__name__}.KeptImages", "data.epoch_samples=72", "data.batch_size=12")
MINE = ("data=custom", "data.order=stream", "data.num_classes=3", "model.width=2", *IMAGES)


def stream(dataset: Any, *, size: int = 24, batch_size: int = 8) -> Any:
    samples = build_stream(dataset, size=size, multiple_of=batch_size, batch_size=batch_size, is_train=True, name="it")
    samples.begin(ALONE, seed=1)
    return samples


def epoch(samples: Any, number: int) -> list[torch.Tensor]:
    samples.set_epoch(number)
    return [samples[index] for index in range(len(samples))]


@pytest.mark.parametrize(("shards", "parts"), [(1, 1), (2, 2), (3, 2), (5, 4), (100, 8)])
def test_a_part_has_ended_before_it_is_read_again(shards, parts):
    samples = stream(kept.Kept(shards=shards))
    numbers = [int(sample[0]) for number in range(20) for sample in epoch(samples, number)]
    for part in range(parts):
        of_part = [number for number in numbers if number % parts == part]
        size = 40 // parts
        assert len(of_part) == len(numbers) // parts
        for start in range(0, len(of_part) - size, size):
            assert {*of_part[start : start + size]} == {*range(part, 40, parts)}


def test_a_rank_reads_the_parts_of_its_samples_only():
    whole, half = stream(kept.Kept(shards=4)), stream(kept.Kept(shards=4))
    expected = epoch(whole, 1)
    kept.READ.clear()
    half.set_epoch(1)
    for index in (*range(4), *range(8, 12), *range(16, 20)):  # of the first of two ranks
        assert torch.equal(half[index], expected[index])
    assert {number % 4 for number in kept.READ} == {0, 1}


@pytest.mark.parametrize("shards", [1, 4])
def test_reading_continues_at_a_state(shards):
    whole, one, other = (stream(kept.Kept(shards=shards)) for _ in range(3))
    assert one.keeps_state
    given = [*epoch(whole, 0), *epoch(whole, 1), *epoch(whole, 2)]
    one.set_epoch(2)
    for index in range(16):
        _ = one[index]
    other.resume(one.reached())
    kept.READ.clear()
    other.set_epoch(2)
    assert all(torch.equal(other[index], given[48 + index]) for index in range(16, 24))
    assert len(kept.READ) == 8
    assert torch.equal(other[3], given[51])  # earlier ones are still there


@pytest.mark.parametrize("kind", [kept.Behind, kept.Unsaved])
def test_a_state_that_leads_elsewhere_is_not_used(kind):
    samples = stream(kind())
    assert not samples.keeps_state
    assert samples.reached() == {}
    why = "since its state_dict leads to other samples"
    assert f"reads again from the beginning of the stream, {why}" in samples.summary
    assert len({int(sample[0]) for sample in epoch(samples, 0)}) == 24


def test_a_killed_run_continues_where_its_stream_was(tmp_path):
    """With loader processes, from a checkpoint that has the state of each part."""
    config = small(*MINE, "data.num_workers=2", "checkpoint.every=7")
    undisturbed = train(tmp_path / "undisturbed", config)
    killed_after(tmp_path / "killed", config, 10)
    resumed = train(tmp_path / "killed", config)
    one, other = weights(undisturbed.trainer), weights(resumed.trainer)
    assert all(torch.equal(one[name], other[name]) for name in one)
    reading = resumed.trainer.train.batches.dataset._parts
    assert [part._saved.position for part in reading] == [7 * 4] * 3
    answer = audit(tmp_path / "killed")
    assert (answer.exit_code, answer.size) == (ExitCode.DONE, 72)
    assert "72 positions of the stream exactly once" in "".join(answer.lines())


def test_a_checkpoint_of_other_samples_is_read_from_the_beginning(tmp_path, capsys):
    first = ("checkpoint.every=1", "trainer.stop_after=3")
    train(tmp_path, small(*MINE, *first))
    other = small(*MINE, "seed=2", "checkpoint.every=1")
    resumed = train(tmp_path, other)
    assert "begins with other samples than the checkpoint's" in capsys.readouterr().err
    assert resumed.trainer.progress.step == 12


def test_the_header_says_what_is_read(tmp_path):
    with opened(tmp_path, small(*MINE)) as trainer:
        summary = trainer.train.sampler.order.summary
    assert "3 parts of the data, as many samples of each in a batch" in summary
    assert summary.endswith("a resumed run continues at its position")


@pytest.mark.processes
def test_two_ranks_take_the_samples_of_one_from_their_parts(tmp_path):
    common = (*MINE, "precision=fp64", "trainer.grad_accumulation=2", "trainer.epochs=1")
    alone = train(tmp_path / "one", small(*common)).folder
    (tmp_path / "two").mkdir()
    train_together(tmp_path / "two", 2, {"ddp": partial(tuple, ["parallel=ddp", *common])})
    two = RunFolder(tmp_path / "two/ddp")
    assert alone.samples.read_text() == two.samples.read_text()
    one, other = (float(rows(folder.epochs)[-1]["val_loss"]) for folder in (alone, two))
    assert one == pytest.approx(other, abs=1e-12)
