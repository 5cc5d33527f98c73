"""Batches in shared memory: any structure of tensors comes out as it went in, and memory is not used too early."""

import gc
import itertools
import math
from typing import NamedTuple

import pytest
import torch
from torch.utils.data import default_collate

from manyheads.runner.data.rank.input_transform import InputTransform
from manyheads.runner.data.rank.slots import BatchSlot, Filling, new_memory, unpack


class Pair(NamedTuple):
    left: object
    right: object


def slot(size: int) -> BatchSlot:
    return BatchSlot(new_memory(size), size)


def sent(value: object, *, filled: BatchSlot | None = None, size: int = 2**16) -> object:
    """What the rank gets of a value."""
    filling, target = Filling(filled), filled or slot(size)
    content = filling.pack(value)
    filling.complete(target)
    return unpack(content, target.memory())


IMAGES = torch.arange(96, dtype=torch.uint8).view(2, 3, 4, 4)
VALUES = {
    "pair": (IMAGES, torch.tensor([3, 4])),
    "dict": {"a": [IMAGES.double(), "text", None], "b": Pair(torch.tensor(1.5), {2, 3})},
    "transposed": IMAGES.transpose(2, 3),
    "every other": IMAGES[:, ::2, :, 1::2],
    "channels_last": IMAGES.contiguous(memory_format=torch.channels_last),
    "repeated": IMAGES[:, :1].expand(2, 3, 4, 4),
    "scalar": torch.tensor(3),
    "empty": torch.zeros(0, 5),
    "of one": torch.zeros(1, 1, 1).expand(1, 1, 1),
    "bool and half": (torch.tensor([True, False]), torch.tensor([1.5], dtype=torch.bfloat16)),
    "complex": torch.tensor([1 + 2j]).conj(),
    "parameter": torch.nn.Parameter(torch.ones(2)),
}


def assert_same(one: object, other: object) -> None:
    """The same structure, types, dtypes and values."""
    if isinstance(other, torch.Tensor):
        assert type(one) is type(other)
        assert one.dtype == other.dtype
        assert torch.equal(one, other)
    elif isinstance(other, (tuple, list)):
        assert type(one) is type(other)
        for pair in zip(one, other, strict=True):
            assert_same(*pair)
    elif isinstance(other, dict):
        assert one.keys() == other.keys()
        for key in other:
            assert_same(one[key], other[key])
    else:
        assert one == other


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_what_is_taken_out_is_what_was_put_in(value):
    assert_same(sent(value), value)


def test_values_that_are_repeated_are_stored_once():
    filling = Filling(None)
    filling.pack(IMAGES[:, :1].expand(2, 3, 4, 4))
    assert filling.needs == 2 * 16
    assert sent(IMAGES[:, :1].expand(2, 3, 4, 4)).stride(1) == 0


@pytest.mark.parametrize("room", [0, 10, 100, 64 + 16, 10_000])
def test_samples_are_collated_as_torch_does_whatever_room_there_is(room):
    samples = [(image, torch.tensor(float(i)), i) for i, image in enumerate(IMAGES)]
    filled = slot(room) if room else None
    filling = Filling(filled)
    made = filling.collate(samples)
    content = filling.pack(made)
    target = filled if filled is not None and filling.needs <= room else slot(filling.needs)
    assert (target is filled) == (room == 10_000)
    filling.complete(target)
    assert_same(unpack(content, target.memory()), default_collate(samples))


def test_samples_are_stacked_in_the_slot_itself():
    filled = slot(4096)
    made = Filling(filled).collate([IMAGES[0], IMAGES[1]])
    assert made.data_ptr() == filled.memory().data_ptr()


def test_images_in_channels_last_stay_so():
    samples, filled = [*IMAGES.contiguous(memory_format=torch.channels_last)], slot(4096)
    filling = Filling(filled)
    content = filling.pack(filling.collate(samples))
    filling.complete(filled)
    batch = unpack(content, filled.memory())
    assert torch.equal(batch, IMAGES)
    assert batch.is_contiguous(memory_format=torch.channels_last)
    assert batch.data_ptr() == filled.memory().data_ptr()


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8])
@pytest.mark.parametrize("shape", [*itertools.product((1, 3), (1, 4), (1, 5))], ids=str)
def test_a_model_gets_the_same_memory_format_through_a_slot(shape, dtype, channels_last):
    """Operations choose their kernels by strides, also by those of dimensions of size 1, as of a grey image."""
    transform = InputTransform(torch.device("cpu"), torch.float32, channels_last, (0.0,), (1.0,))
    for order, count in itertools.product(itertools.permutations(range(3)), (1, 2)):
        stored = torch.arange(math.prod(shape), dtype=dtype).view([shape[i] for i in order])
        samples = [stored.permute([order.index(i) for i in range(3)])] * count
        filling, filled = Filling(slot(4096)), slot(4096)
        content = filling.pack(filling.collate(samples))
        filling.complete(filled)
        through, direct = map(transform.prepare, (unpack(content, filled.memory()), default_collate(samples)))
        assert torch.equal(through, direct)
        assert through.stride() == direct.stride()


def test_samples_of_different_dtypes_are_promoted():
    samples = [torch.tensor([1]), torch.tensor([1.5])]
    assert_same(Filling(slot(4096)).collate(samples), default_collate(samples))


def test_a_slot_is_released_when_its_last_tensor_is_gone():
    filled, released = slot(4096), []
    filling = Filling(filled)
    content = filling.pack((IMAGES, torch.tensor([1, 2])))
    filling.complete(filled)
    images, labels = unpack(content, filled.memory(lambda: released.append(1)))
    part = images[0, 0].numpy()[1:]
    del images, filling
    gc.collect()
    assert not released
    del labels
    assert not released
    assert part.tolist() == IMAGES[0, 0, 1:].tolist()
    del part
    assert released == [1]
