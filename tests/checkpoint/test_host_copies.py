"""Copies of a GPU's tensors in memory that is kept: their values, what is kept, and what happens without room."""

import pytest
import torch

from manyheads.runner.checkpoint.rank.checkpoints import CheckpointStore
from manyheads.runner.checkpoint.rank.host_copies import ALIGNED, BLOCK, HostCopies
from manyheads.runner.checkpoint.rank.load import load
from manyheads.runner.run.run_folder import RunFolder
from tests.checkpoint.views import Given, OneRank, seen_on_gpu


@pytest.fixture(autouse=True)
def waits(monkeypatch):
    return seen_on_gpu(monkeypatch)


def refused(_):
    raise AssertionError("a tensor is not copied to memory that is kept")


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_file_has_the_values_the_formats_and_the_ties(tmp_path, waits, asynchronous):
    image, tied = torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last), torch.randn(5, 7)
    kinds = [torch.tensor([True, False]), torch.ones(3, dtype=torch.bfloat16), torch.ones(2, dtype=torch.cfloat)]
    part, parameter = torch.randn(6, 4)[:, 1:3], torch.nn.Parameter(torch.ones(3))
    content = [image, tied, tied.detach(), *kinds, part, parameter, torch.empty(0, 3), torch.tensor(3)]
    expected = [tensor.detach().clone() for tensor in content]
    checkpoints = CheckpointStore(RunFolder(tmp_path), every=1, keep=0, asynchronous=asynchronous)
    checkpoints.save(Given({"model": {}, "progress": {}, "content": content}), OneRank(), step=1, best=True)
    for tensor in content if asynchronous else ():
        tensor.data.fill_(0)  # training continues
    checkpoints.wait_for_save()
    assert len(waits) == 1
    read = load(tmp_path / "checkpoints" / "last.pt")["content"]
    for tensor, value in zip(read, expected, strict=True):
        assert torch.equal(tensor, value)
        assert tensor.dtype == value.dtype
    assert read[0].is_contiguous(memory_format=torch.channels_last)
    assert read[1].data_ptr() == read[2].data_ptr()
    assert (tmp_path / "checkpoints" / "last.pt").stat().st_size < 10_000  # no more than the tensors' own memory


def test_memory_is_used_again():
    memory = HostCopies(4 * BLOCK, print)
    tensors = [torch.ones(3), torch.ones(BLOCK // 4), torch.ones(5)]
    first = [copy.data_ptr() for copy in memory.of(tensors, refused)]
    assert [copy.data_ptr() for copy in memory.of([tensor * 2 for tensor in tensors], refused)] == first
    larger = memory.of([torch.ones(7), torch.ones(BLOCK // 4 + 1)], refused)  # shapes change
    assert larger[0].data_ptr() == first[0]
    assert sum(map(len, memory._blocks)) == 3 * BLOCK  # the block that nothing needs any more is freed
    assert torch.equal(larger[1], torch.ones(BLOCK // 4 + 1))


def test_copies_do_not_overlap():
    tensors = [torch.randn(size) for size in torch.randint(1, 5000, (50,), generator=torch.Generator().manual_seed(0))]
    copies = HostCopies(BLOCK, print).of(tensors, refused)
    assert all(map(torch.equal, copies, tensors))
    assert all(copy.data_ptr() % ALIGNED == copies[0].data_ptr() % ALIGNED for copy in copies)


def test_memory_is_bounded():
    """What has no room is copied as if no memory was kept, or left where it is."""
    tensors = [torch.ones(BLOCK // 4), torch.ones(3), torch.ones(BLOCK // 4)]
    copies = HostCopies(2 * BLOCK, print).of(tensors, lambda tensor: tensor)
    assert [copy is tensor for copy, tensor in zip(copies, tensors, strict=True)] == [False, False, True]


def test_without_pinned_memory_ordinary_memory_is_used(monkeypatch, waits):
    ordinary, said = torch.empty, []

    def empty(*shape, pin_memory=False, **options):
        if pin_memory:
            raise RuntimeError("CUDA error: out of memory\nmore lines")
        return ordinary(*shape, **options)

    monkeypatch.setattr(torch, "empty", empty)
    memory, tensors = HostCopies(8 * BLOCK, said.append), [torch.ones(3), torch.ones(BLOCK // 4)]
    for count in (1, 2):
        assert all(map(torch.equal, memory.of(tensors, refused), tensors))
        assert len(waits) == count
    assert said == [
        "no more memory can be pinned (CUDA error: out of memory): copying checkpoints from the GPU takes longer"
    ]
