"""Batches on the device: alike for any number of loader processes, and without a trace in the rank's generators."""

import gc
import os
import random
from contextlib import closing

import numpy as np
import psutil
import pytest
import torch

from manyheads.runner.data.imagefolder import ImageFolder
from manyheads.runner.data.rank.batches import BatchDataset
from manyheads.runner.data.rank.in_memory import InMemory
from manyheads.runner.data.rank.sampler import BatchIndices
from manyheads.runner.errors import ConfigurationError
from tests.data.conftest import SIDE
from tests.in_process import build_dataset
from tests.zoo import Drawing, Noise, Unreadable


def everything(batches) -> list[tuple]:
    return [(b.inputs.clone(), b.content[1].tolist(), b.count, b.weight, b.corrupt) for b in batches]


def assert_alike(one: list[tuple], other: list[tuple]) -> None:
    assert len(one) == len(other) > 0
    for (inputs, *rest), (other_inputs, *other_rest) in zip(one, other, strict=True):
        assert torch.equal(inputs, other_inputs)
        assert rest == other_rest


def state() -> tuple:
    return torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()


@pytest.fixture
def train(photos):
    return build_dataset(ImageFolder(root=str(photos), image_size=SIDE), train=True)


@pytest.mark.parametrize("num_workers", [1, 3])
def test_the_number_of_loader_processes_changes_nothing(load, train, num_workers):
    plain, spread = (load(train, batch_size=4, num_workers=n, drop_last=False) for n in (0, num_workers))
    for epoch in (0, 1):
        assert_alike(everything(spread.epoch(epoch)), everything(plain.epoch(epoch)))
    assert_alike(everything(spread.epoch(1, 2)), everything(plain.epoch(1))[2:])  # from the middle on


def test_closed_within_an_epoch_its_processes_are_gone(load, train):
    made = load(train, batch_size=4, num_workers=2)
    others = {child.pid for child in psutil.Process().children()}
    next(made.epoch(0))
    started = [child for child in psutil.Process().children() if child.pid not in others]
    assert started
    made.close()
    assert psutil.wait_procs(started, timeout=2)[1] == []
    assert len(everything(made.epoch(0))) == made.updates  # which starts others


class Strided(Noise):
    """Whose collation returns views: transposed images, channels that repeat one, every other label."""

    grey = False

    def collate_fn(self, samples):
        images = torch.stack([image.transpose(1, 2) for image, _ in samples]).transpose(2, 3)
        if self.grey:
            images = images[:, :1].expand_as(images)
        return images, torch.tensor([label for _, label in samples for _ in range(2)])[::2]


@pytest.mark.parametrize("grey", [True, False])
@pytest.mark.parametrize("num_workers", [0, 1])
def test_batches_are_contiguous(load, num_workers, grey):
    dataset = Strided(split="train")
    dataset.grey = grey
    with closing(load(dataset, batch_size=4, num_workers=num_workers)) as made:
        batch = next(made.epoch(0))
        assert not dataset.collate_fn([dataset[0], dataset[1]])[0].is_contiguous()
        assert batch.inputs.view(4, -1).shape[0] == batch.content[1].view(-1).shape[0] == 4


class Collecting(Noise):
    """Of which each sample is read while Python collects cycles."""

    def __getitem__(self, index):
        gc.collect()
        return super().__getitem__(index)


def test_loader_processes_leave_the_rank_s_garbage_alone(load, tmp_path):
    """Such as an earlier process group, whose threads they do not have: its end would be theirs."""

    class Left:
        def __del__(self):
            (tmp_path / str(os.getpid())).touch()

    gc.collect()
    gc.disable()
    try:
        left = Left()
        left.itself = left
        del left
        everything(load(Collecting(split="train", size=8), batch_size=4, num_workers=1).epoch(0))
        assert not [*tmp_path.iterdir()]
    finally:
        gc.enable()
    gc.collect()
    assert [path.name for path in tmp_path.iterdir()] == [str(os.getpid())]


def test_augmentation_depends_on_seed_epoch_and_sample_alone(load, train):
    def images(*, epoch: int = 0, **options) -> dict[int, torch.Tensor]:
        """Each sample's image as the model gets it, by the sample's number."""
        made = load(train, drop_last=False, **options)
        requests = list(made.sampler.epoch(epoch))
        pairs = zip(requests, made.epoch(epoch), strict=True)
        return {int(i): image for request, b in pairs for i, image in zip(request.indices, b.inputs, strict=True)}

    def same(one: dict, other: dict) -> list[bool]:
        return [torch.equal(one[i], other[i]) for i in other]

    reference = images(batch_size=4)
    assert len(reference) == 15
    for other in ({"batch_size": 6}, {"batch_size": 6, "rank": 1, "ranks": 2}, {"batch_size": 4, "accumulation": 2}):
        assert all(same(reference, images(**other)))
    assert not any(same(reference, images(batch_size=4, epoch=1)))
    assert not any(same(reference, images(batch_size=4, seed=2)))


def test_every_generator_that_a_transform_may_use_is_keyed(load):
    data = Drawing(split="train", size=12)
    plain, spread = (load(data, batch_size=4, num_workers=n) for n in (0, 2))
    assert_alike(everything(spread.epoch(0)), everything(plain.epoch(0)))
    first, second = (torch.cat([b.inputs for b in plain.epoch(epoch)]) for epoch in (0, 1))
    assert not torch.equal(first, second)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_loading_leaves_the_rank_s_random_numbers_alone(load, train, num_workers):
    before = state()
    made = load(train, batch_size=4, num_workers=num_workers)
    for epoch in (0, 1):
        for _ in made.epoch(epoch):
            assert state() == before
    made.example()
    assert state() == before


@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_epoch_may_be_left_early(load, train, num_workers):
    made = load(train, batch_size=4, num_workers=num_workers)
    whole = everything(made.epoch(1))
    next(iter(made.epoch(0)))
    assert_alike(everything(made.epoch(1)), whole)


def test_the_example_is_the_first_batch(load, train):
    made = load(train, batch_size=4)
    assert_alike(everything([made.example()]), everything(made.epoch(0))[:1])


def test_uint8_images_are_scaled_and_normalized_and_float_images_are_not(load):
    images = torch.arange(2 * 3 * 4 * 4, dtype=torch.uint8).reshape(2, 3, 4, 4)
    made = load(InMemory(images, torch.tensor([0, 1]), image_size=4), batch_size=2, train=False)
    (batch,) = made.epoch(0)
    mean, std = torch.tensor([0.25, 0.5, 0.75]).view(3, 1, 1), torch.tensor([0.5, 1.0, 2.0]).view(3, 1, 1)
    torch.testing.assert_close(batch.inputs, (images.double() / 255 - mean) / std, rtol=0, atol=1e-14)
    noise = Noise(split="val", size=4)
    (batch,) = load(noise, batch_size=4, train=False).epoch(0)
    assert torch.equal(batch.inputs, noise.images.double())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("channels_last", [True, False])
@pytest.mark.parametrize("num_workers", [0, 1])
def test_images_enter_in_the_precision_s_dtype_and_format(load, train, dtype, channels_last, num_workers):
    batch = next(load(train, batch_size=4, dtype=dtype, channels_last=channels_last, num_workers=num_workers).epoch(0))
    assert batch.inputs.dtype == dtype
    assert batch.inputs.shape == (4, 3, SIDE, SIDE)
    memory_format = torch.channels_last if channels_last else torch.contiguous_format
    assert batch.inputs.is_contiguous(memory_format=memory_format)
    assert batch.content[1].dtype == torch.int64


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_evaluation_sees_every_sample_once(load, ranks, num_workers):
    data = Noise(split="val", size=7)
    each = [
        list(load(data, batch_size=3, train=False, rank=rank, ranks=ranks, num_workers=num_workers).epoch(0))
        for rank in range(ranks)
    ]
    assert {len(batches) for batches in each} == {3}
    seen = torch.cat([b.inputs for batches in each for b in batches if b.count])
    assert sum(b.count for batches in each for b in batches) == 7
    assert sorted(seen[:, 0, 0, 0].tolist()) == sorted(data.images[:, 0, 0, 0].double().tolist())


def test_an_empty_share_of_images_that_are_enlarged(load):
    data = InMemory(torch.zeros(1, 1, 28, 28, dtype=torch.uint8), torch.tensor([4]), image_size=32, augment="crop_flip")
    counts = [next(load(data, batch_size=2, train=False, rank=r, ranks=3).epoch(0)).count for r in range(3)]
    assert sorted(counts) == [0, 0, 1]


@pytest.mark.parametrize("num_workers", [0, 2])
class TestCorrupt:
    def test_error_names_the_path(self, load, num_workers):
        for train in (True, False):
            made = load(Unreadable(split="train", size=8), batch_size=4, train=train, num_workers=num_workers)
            with pytest.raises(
                ConfigurationError, match=r"three\.jpg cannot be read \(broken\).*data\.on_corrupt=skip"
            ):
                list(made.epoch(0))

    @pytest.mark.parametrize("ranks", [1, 2, 3])
    def test_training_takes_the_next_sample_instead(self, load, ranks, num_workers):
        data = Unreadable(split="train", size=12)
        options = {"batch_size": 6, "ranks": ranks, "on_corrupt": "skip", "num_workers": num_workers}
        each = [everything(load(data, rank=rank, **options).epoch(0)) for rank in range(ranks)]
        order = list(load(data, batch_size=12).sampler.epoch(0))[0].indices
        expected = torch.tensor(np.where(order == 3, 4, order))
        for update in range(2):
            images = torch.cat([batches[update][0] for batches in each])
            assert torch.equal(images, data.images[expected[6 * update : 6 * update + 6]].double())
        assert [one.path for batches in each for b in batches for one in b[4]] == ["three.jpg"]
        assert sum(b[2] for batches in each for b in batches) == 12

    @pytest.mark.parametrize("ranks", [1, 2, 3])
    def test_evaluation_leaves_it_out(self, load, ranks, num_workers):
        data = Unreadable(split="val", size=7)
        options = {"batch_size": 3, "train": False, "ranks": ranks, "on_corrupt": "skip", "num_workers": num_workers}
        each = [list(load(data, rank=rank, **options).epoch(0)) for rank in range(ranks)]
        assert {len(batches) for batches in each} == {3}
        assert sum(b.count for batches in each for b in batches) == 6
        assert all((0 if b.inputs is None else len(b.inputs)) == b.count for batches in each for b in batches)
        assert sum(len(b.corrupt) for batches in each for b in batches) == 1


def pinned(tensor):
    """As torch pins memory: another tensor of the same strides is written, of which none may be 0."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype).copy_(tensor)


@pytest.mark.parametrize("channels", [1, 3])
def test_images_in_memory_can_be_pinned(monkeypatch, channels):
    """Grey ones are one channel, shown three times."""
    monkeypatch.setattr(torch.Tensor, "pin_memory", pinned)
    images = torch.randint(256, (6, channels, 8, 8), dtype=torch.uint8)
    batches = BatchDataset(
        InMemory(images, torch.arange(6), image_size=8), seed=1, on_corrupt="error", replace_corrupt=True
    )
    request = BatchIndices(0, np.array([4, 0, 5, 1]), 4, 1.0)
    plain, batch = batches[request], batches[request].pin_memory()
    assert batch.content[0].shape == (4, 3, 8, 8)
    assert all(torch.equal(*pair) for pair in zip(plain.content, batch.content, strict=True))
