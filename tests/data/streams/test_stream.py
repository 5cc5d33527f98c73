"""Streams: samples by position, the same for ranks, loader processes and resumed runs; none lost, none twice."""

import random
import re
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import IterableDataset

from manyheads.runner.data.rank.streams.stream import Stream
from manyheads.runner.errors import ConfigurationError, ExitCode
from manyheads.runner.parallel.rank.parallel import Parallel
from manyheads.runner.run.run_folder import RunFolder
from tests.in_process import attempt, rows, small, train, weights
from tests.loop.test_session import killed_after
from tests.optional_wings import audit
from tests.parallel.together import train_together

ALONE = Parallel(rank=0, local_rank=0, world_size=1, device_type="cpu")
READ: list[tuple[int, int]] = []  # pass and number of each sample that was given


class Numbers(IterableDataset):
    """Numbers, in an order drawn for each pass. ``sized``: whether it has a length; ``says``: another one."""

    def __init__(self, split: str = "train", count: int = 21, says: int | None = None, fails: int | None = None):
        self.count, self.epoch, self.fails, self.says = count, 0, fails, says

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self):
        order = [*range(self.count)]
        random.shuffle(order)
        for at, number in enumerate(order):
            if at == self.fails:
                raise OSError("connection lost")
            READ.append((self.epoch, number))
            yield torch.tensor([float(number), torch.rand(()).item() + np.random.random()])


class Sized(Numbers):
    def __len__(self) -> int:
        return self.says or self.count


class Images(Sized):
    """Images and classes: 83 for training, 21 for validation."""

    def __init__(self, split: str):
        super().__init__(split, count=83 if split == "train" else 21)
        self.split = len(split)

    def __iter__(self):
        for number, _ in super().__iter__():
            noise = np.random.RandomState(int(number) + 1000 * self.split).rand(3, 8, 8)
            yield torch.from_numpy(noise).float() + torch.rand(()) / 8, int(number) % 3


class Unsized(Images):
    __len__ = None  # type: ignore[assignment]


def stream(
    dataset: Any, *, size: int | None = None, multiple_of: int = 1, is_train: bool = True, seed: int = 1
) -> Stream:
    samples = Stream(dataset, size=size, multiple_of=multiple_of, batch_size=4, is_train=is_train, name="mine")
    samples.begin(ALONE, seed=1)
    return samples


@pytest.mark.parametrize(("kind", "size"), [(Sized, None), (Sized, 30), (Numbers, 30), (Numbers, 8)])
def test_samples_do_not_depend_on_what_was_read_before(kind, size):
    one, other = stream(kind(), size=size), stream(kind(), size=size)
    in_sequence = []
    for epoch in range(3):
        one.set_epoch(epoch)
        in_sequence += [one[index] for index in range(len(one))]
    for epoch, index in ((2, 3), (0, 5), (0, 4), (1, 7), (1, 3)):
        other.set_epoch(epoch)
        assert torch.equal(other[index], in_sequence[epoch * len(one) + index])
    first_pass = [int(sample[0]) for sample in in_sequence[:21]]
    assert sorted(first_pass) == [*range(21)]
    assert [int(sample[0]) for sample in in_sequence[21:42]] != first_pass


def test_what_an_incomplete_batch_leaves_comes_in_the_next_epoch():
    samples = stream(Sized(), multiple_of=4)
    assert len(samples) == 20
    given = []
    for epoch in range(21):
        samples.set_epoch(epoch)
        given += [int(samples[index][0]) for index in range(20)]
    assert [given.count(number) for number in range(21)] == [20] * 21


def test_it_is_read_once_in_sequence_and_a_known_length_is_not_read_again():
    samples = stream(Sized())
    READ.clear()
    samples.set_epoch(5)
    assert [int(samples[index][0]) for index in range(21)] == [number for _, number in READ]
    assert {number for number, _ in READ} == {5}
    assert [samples[index] is not None for index in (20, 19, 18, 17)] == [True] * 4  # of the latest batch
    assert len(READ) == 21


REFUSED: dict[str, tuple[Any, dict[str, Any], str]] = {
    "no length": (Numbers(), {}, "has no __len__. Set data.epoch_samples"),
    "empty": (Numbers(count=0), {"size": 4}, "gives 0 samples in pass 1"),
    "shorter": (Sized(says=25), {}, "gives 21 samples in pass 1, and its __len__ is 25"),
    "longer": (Sized(says=15), {}, "gives more than the 15 samples of its __len__"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_stream_of_its_length_is_refused(name):
    dataset, options, reason = REFUSED[name]

    def read() -> None:
        samples = stream(dataset, **options)
        for epoch in range(2):
            samples.set_epoch(epoch)
            _ = [samples[index] for index in range(len(samples))]

    with pytest.raises(ConfigurationError, match=f"data._target_=mine {re.escape(reason)}"):
        read()


def test_a_stream_that_goes_on_when_it_is_read_again_is_refused():
    class Going(Numbers):
        def __init__(self):
            super().__init__()
            self.items = super().__iter__()

        def __iter__(self):
            return self.items

    with pytest.raises(ConfigurationError, match="gives other samples when it is read again"):
        stream(Going(), size=8)


def test_samples_of_a_stream_for_evaluation_are_counted():
    assert len(stream(Numbers(), is_train=False)) == 21


MINE = ("data=custom", "data.order=stream", "data.num_classes=3", "model.width=2")
MISTAKES = {
    "not said": (("data.order=auto", "Images"), "gives an IterableDataset.*Set data.order=stream"),
    "numbered": (("data=synthetic", ""), "data.order=stream: the samples of data=synthetic have numbers"),
    "drawn": (("data.val_fraction=0.2", "Images"), "validation samples can't be selected from a stream"),
    "skipping": (("data.on_corrupt=skip", "Images"), "a stream can't be continued after an error"),
    "sampler": (("data.sampler=balanced", "Images"), "data.sampler decides the order"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_settings_that_need_numbers_are_refused(tmp_path, name):
    (option, kind), reason = MISTAKES[name]
    given = [*MINE, *([f"data._target_={__name__}.{kind}"] if kind else []), option]
    if not kind:
        given = ["data.order=stream"]
    with pytest.raises(ConfigurationError, match=reason):
        attempt(tmp_path, small(*given))


def test_a_stream_that_breaks_says_why(tmp_path):
    samples = stream(Sized(fails=9))
    samples.set_epoch(0)
    with pytest.raises(OSError, match="connection lost"):
        _ = [samples[index] for index in range(12)]


def test_a_killed_run_continues_with_the_samples_that_are_due(tmp_path):
    """With loader processes, of unknown length, and with copies of samples that are mixed."""
    target = (f"data._target_={__name__}.Unsized", "data.epoch_samples=100", "data.num_workers=2")
    config = small(*MINE, *target, "trainer.mixup_alpha=0.3")
    undisturbed = train(tmp_path / "undisturbed", config)
    killed_after(tmp_path / "killed", config, 17)
    resumed = train(tmp_path / "killed", config)
    one, other = weights(undisturbed.trainer), weights(resumed.trainer)
    assert all(torch.equal(one[name], other[name]) for name in one)
    answer = audit(tmp_path / "killed")
    assert (answer.exit_code, answer.size, answer.samples) == (ExitCode.DONE, 96, 192)


@pytest.mark.processes
def test_two_ranks_take_the_samples_of_one(tmp_path):
    target = f"data._target_={__name__}.Images"
    common = (*MINE, target, "precision=fp64", "trainer.grad_accumulation=2")
    alone = train(tmp_path / "one", small(*common)).folder
    (tmp_path / "two").mkdir()
    train_together(tmp_path / "two", 2, {"ddp": partial(tuple, ["parallel=ddp", *common])})
    two = RunFolder(tmp_path / "two/ddp")
    assert alone.samples.read_text() == two.samples.read_text()
    one, other = (float(rows(folder.epochs)[-1]["val_loss"]) for folder in (alone, two))
    assert one == pytest.approx(other, abs=1e-12)


def test_a_stream_that_divides_samples_among_ranks_itself_is_refused():
    class OfTwo(Parallel):
        def gather(self, value: Any) -> list[Any]:
            return [value, value[1:]]

    ranks = OfTwo(rank=0, local_rank=0, world_size=2, device_type="cpu")
    samples = Stream(Sized(), size=None, multiple_of=1, batch_size=4, is_train=True, name="mine")
    with pytest.raises(ConfigurationError, match="gives other samples on other ranks. Let it give all samples"):
        samples.begin(ranks, seed=1)
