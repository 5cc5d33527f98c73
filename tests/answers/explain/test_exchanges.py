"""The collectives of an update are found, whoever in torch starts them, and can be repeated."""

from contextlib import suppress

import pytest
import torch
import torch.distributed as dist
from torch import nn

from manyheads.runner.answers.measure.rank.parts import RecordedCollectives


@pytest.fixture(autouse=True)
def alone():
    """A process group of this process."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def averaged():
    model = nn.parallel.DistributedDataParallel(nn.Linear(3, 2))
    model(torch.ones(1, 3)).sum().backward()
    return [parameter.grad.clone() for parameter in model.parameters()]


def gathered():
    own = torch.ops._c10d_functional.all_gather_into_tensor(torch.ones(2), 1, dist.group.WORLD.group_name)
    torch.ops._c10d_functional.wait_tensor(own)
    return []


@pytest.mark.parametrize("exchange", [averaged, gathered])
def test_collectives_are_repeated(exchange):
    with RecordedCollectives() as found:
        before = exchange()
    assert found
    assert found.is_complete
    found.again()
    with RecordedCollectives() as repeated:
        found.again()
    calls = [[str(func) for func, _ in each._calls] for each in (found, repeated)]
    assert calls[0] == calls[1]
    assert all(bool((one == other).all()) for one, other in zip(before, exchange(), strict=True))


def test_messages_between_two_ranks_are_not_repeated():
    found = RecordedCollectives()
    with found, suppress(RuntimeError):  # of Gloo, since there is no other rank
        dist.irecv(torch.zeros(1), 0)
    assert not found
    assert not found.is_complete
