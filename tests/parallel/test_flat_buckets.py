"""Many tensors are exchanged in few operations, with the values of exchanging each."""

import os
from collections import Counter
from itertools import product
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn

from manyheads.runner.parallel.rank import flat_buckets
from manyheads.runner.parallel.rank.flat_buckets import buckets, exchange
from manyheads.runner.parallel.rank.local_sgd import LocalSGD
from manyheads.runner.parallel.rank.process_group import ProcessGroup
from tests.checkpoint.ranks import Rank, together

DDP = ("bucket_cap_mb", "gradient_as_bucket_view", "static_graph", "find_unused_parameters", "sync_batchnorm")


def with_ranks(count: int, path: Path, work) -> None:
    """Let so many real ranks do the work, in a process group over Gloo; its calls are counted by name."""

    def joined(rank: Rank) -> None:
        os.environ["MANYHEADS_MEETING"] = f"{path}/gloo"
        place = {"rank": rank.rank, "local_rank": rank.rank, "world_size": count, "device_type": "cpu"}
        options = {**dict.fromkeys(DDP, False), "broadcast_buffers": False}
        parallel = LocalSGD(period=1, start=0, timeout=60, **options, **place)
        parallel.join()
        calls = Counter[str]()
        for name in ("broadcast", "all_reduce"):
            setattr(dist, name, counted(getattr(dist, name), calls, name))
        work(parallel, calls)
        parallel.leave()

    assert together(count, joined, path / "meeting") == [0] * count, [
        error.read_text() for error in path.glob("meeting/error.*")
    ]


def counted(function, calls: Counter, name: str):
    def called(*args, **kwargs):
        calls[name] += 1
        return function(*args, **kwargs)

    return called


def drawn(rank: int) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(rank)
    shapes = ((), (3,), (2, 3, 4, 4), (0,), (7, 5))
    dtypes = (torch.float32, torch.float64, torch.bfloat16, torch.complex64)
    tensors = [torch.randn(shape, generator=draw, dtype=dtype) for shape, dtype in product(shapes, dtypes)]
    return [*tensors, tensors[8].to(memory_format=torch.channels_last), torch.randn(4, 6, generator=draw)[:, 1:3]]


@pytest.mark.processes
def test_sums_have_the_bits_of_one_by_one(tmp_path):
    def work(parallel: ProcessGroup, calls: Counter) -> None:
        tensors, alone = drawn(parallel.rank), drawn(parallel.rank)
        for tensor in alone:
            whole = tensor.contiguous()
            dist.all_reduce(whole)
            tensor.copy_(whole)
        calls.clear()
        exchange(tensors, dist.all_reduce)
        assert calls == {"all_reduce": 4}
        assert all(map(torch.equal, tensors, alone))

    with_ranks(2, tmp_path, work)


@pytest.mark.processes
def test_buffers_and_weights_take_a_call_per_dtype(tmp_path):
    def work(parallel: LocalSGD, calls: Counter) -> None:
        model = nn.Sequential(*[nn.BatchNorm1d(3) for _ in range(50)])
        for number, tensor in enumerate([*model.parameters(), *model.buffers()]):
            tensor.data.fill_(number + parallel.rank)
        parallel.share_buffers(model)
        assert calls == {"broadcast": 2}
        assert [int(buffer.flatten()[0]) for buffer in model.buffers()] == [*range(100, 250)]
        parallel.wrap_optimizer(torch.optim.SGD(model.parameters(), lr=0.1), model)
        calls.clear()
        with parallel.stepping(None):
            pass
        assert calls == {"all_reduce": 1}
        assert [float(weight.data[0]) for weight in model.parameters()] == [number + 1 for number in range(100)]

    with_ranks(3, tmp_path, work)


def test_buckets_are_bounded_and_keep_their_order(monkeypatch):
    monkeypatch.setattr(flat_buckets, "MOST", 40)
    sizes = [4, 4, 3, 20, 1, 5]
    tensors = [torch.empty(size, dtype=dtype) for size in sizes for dtype in (torch.float32, torch.float64)]
    lengths = [[len(tensor) for tensor in bucket] for bucket in buckets(tensors)]
    assert sorted(lengths) == sorted([[4, 4], [3], [20], [1, 5], [4], [4], [3], [20], [1], [5]])
    assert [*buckets([])] == []
