"""Programs of two ranks: some keep NCCL's rules, others break one each, and all but one of these end under Gloo."""

from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from tests.parallel.nccl_rules.calls import RecordedCalls
from tests.parallel.nccl_rules.replay import Rule

PATIENCE = timedelta(seconds=3)  # of Gloo, where it waits too


def numbers() -> Tensor:
    return torch.ones(2, 3)


def messages_in_turn(rank: int, group: Any) -> None:
    for sender in (0, 1):
        if rank == sender:
            dist.send(numbers(), 1 - rank)
        else:
            dist.recv(numbers(), 1 - rank)


def messages_in_a_batch(rank: int, group: Any) -> None:
    ways = (dist.isend, dist.irecv)
    for work in dist.batch_isend_irecv([dist.P2POp(way, numbers(), 1 - rank) for way in ways]):
        work.wait()


def parts_of_other_lengths(rank: int, group: Any) -> None:
    dist.all_gather_object([None, None], "object" * (1 + rank))
    dist.gather(numbers(), [numbers(), numbers()] if rank == 0 else None)
    given, taken = ([1, 2], [1, 1]) if rank == 0 else ([1, 3], [2, 3])
    dist.all_to_all_single(torch.ones(sum(taken)), torch.ones(sum(given)), taken, given)
    dist.all_reduce(torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last), group=group)


def both_send_first(rank: int, group: Any) -> None:
    sending = dist.isend(sent := numbers(), 1 - rank)
    dist.recv(torch.empty_like(sent), 1 - rank)
    sending.wait()


def sorted_by_tags(rank: int, group: Any) -> None:
    if rank == 0:
        sent = [numbers(), numbers()]
        for work in [dist.isend(each, 1, tag=tag) for tag, each in enumerate(sent)]:
            work.wait()
    else:
        for tag in (1, 0):
            dist.recv(numbers(), 0, tag=tag)


def sums_in_another_order(rank: int, group: Any) -> None:
    operations = [dist.ReduceOp.SUM, dist.ReduceOp.MAX]
    for operation in operations if rank == 0 else operations[::-1]:
        dist.all_reduce(numbers(), op=operation)


def one_rank_stays_away(rank: int, group: Any) -> None:
    if rank == 0:
        dist.all_reduce(numbers())


def other_dtypes(rank: int, group: Any) -> None:
    dist.all_reduce(torch.ones(6) if rank == 0 else torch.ones(3, dtype=torch.float64))


def other_shapes(rank: int, group: Any) -> None:
    dist.all_reduce(numbers() if rank == 0 else torch.ones(3, 2))


def message_beside_a_sum(rank: int, group: Any) -> None:
    if rank == 0:
        sending = dist.isend(numbers(), 1)
        dist.all_reduce(numbers())
        sending.wait()
    else:
        dist.all_reduce(numbers())
        dist.recv(numbers(), 0)


def groups_in_another_order(rank: int, group: Any) -> None:
    groups = [None, group] if rank == 0 else [group, None]
    for work in [dist.all_reduce(numbers(), group=each, async_op=True) for each in groups]:
        work.wait()


def transposed(rank: int, group: Any) -> None:
    dist.all_reduce(numbers().t())


KEEPING = (messages_in_turn, messages_in_a_batch, parts_of_other_lengths)
BREAKING = {
    both_send_first: Rule.RENDEZVOUS,
    sorted_by_tags: Rule.RENDEZVOUS,
    sums_in_another_order: Rule.ORDER,
    one_rank_stays_away: Rule.ORDER,
    other_dtypes: Rule.TENSORS,
    other_shapes: Rule.TENSORS,
    message_beside_a_sum: Rule.SERIAL,
    groups_in_another_order: Rule.COMMUNICATORS,
    transposed: Rule.CONTIGUOUS,
}


def run_all(rank: int, folder: Path) -> None:
    """Be one of two ranks that run all programs over Gloo, each recorded in a folder of its name."""
    torch.set_num_threads(1)
    for program in (*KEEPING, *BREAKING):
        own = folder / program.__name__
        own.mkdir(exist_ok=True)
        meeting = (own / "meeting").as_uri()
        dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2, timeout=PATIENCE)
        with suppress(*[RuntimeError] * (program is one_rank_stays_away)):
            group = dist.new_group([0, 1])
            with RecordedCalls(own / f"calls_{rank}"):
                program(rank, group)
        dist.destroy_process_group()
