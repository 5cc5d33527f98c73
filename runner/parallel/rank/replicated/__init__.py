"""parallel=replicated: replicas that may die and rejoin while the others keep training, over torchft.

A replica is one rank, or a group of ranks that are a run of parallel=ddp or fsdp among themselves: ``Replica`` adds the
exchange with the other replicas to any of these.
"""

from typing import Any

from manyheads.runner.parallel.rank.parallel import Parallel
from manyheads.runner.parallel.rank.process_group import ProcessGroup, Replicas
from manyheads.runner.parallel.rank.replicated.group import INSIDE_SECONDS
from manyheads.runner.parallel.rank.replicated.replica import Replica

PIECE: dict[str, Any] = {  # of DistributedDataParallel, which then holds a second copy of gradients, as a replica does
    "bucket_cap_mb": 25,
    "gradient_as_bucket_view": False,
    "static_graph": True,
    "find_unused_parameters": False,
}


class OneRankReplica(Replica, Parallel):
    """A replica of one rank."""


class Copies(Replica, ProcessGroup):
    """A replica of several ranks with the whole model each.

    Its gradients are averaged with those of the other replicas in one piece, of which each rank exchanges a part.
    """


def replica(
    *,
    trusted_network: bool,
    timeout: float,
    rank: int,
    world_size: int,
    ranks_per_replica: int = 1,
    inside: str = "ddp",
    **position: Any,
) -> Replica:
    """Create this rank as one of its replica. ``timeout``: seconds that an exchange between replicas may take."""
    number, rank = divmod(rank, ranks_per_replica)
    among = {"replica": number, "replicas": world_size // ranks_per_replica, "patience": timeout}
    position |= {"rank": rank, "world_size": ranks_per_replica, **among}
    if ranks_per_replica == 1:
        return OneRankReplica(**position)
    if inside == "ddp":
        return Copies(timeout=INSIDE_SECONDS, **position)
    from manyheads.runner.parallel.rank.replicated.model_parallel import ShardedReplica

    return ShardedReplica(timeout=INSIDE_SECONDS, **position)


def stand_in(*, shards: int, world_size: int, **position: Any) -> Parallel:
    """A strategy without torchft whose ranks hold the same, and exchange about as much, for estimates."""
    if shards == 1:
        return Replicas(world_size=world_size, sync_batchnorm=False, broadcast_buffers=False, **PIECE, **position)
    from manyheads.runner.parallel.rank.replicated import model_parallel

    return model_parallel.stand_in(shards=shards, world_size=world_size, **position)
