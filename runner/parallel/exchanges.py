"""The communication of a strategy's ranks in an update, as data; ``scale`` predicts its time."""

from dataclasses import dataclass, field

from manyheads.runner.parallel.mesh_layout import Layout

MEGABYTE = 2**20


@dataclass(frozen=True)
class Exchanges:
    """Collectives of an update. By default replicas reduce their gradients after the backward pass.

    ``layout``: the mesh of all devices; gradients are reduced over ``replicate``, and over ``shard``.
    ``overlaps``: whether gradients are exchanged while the backward pass continues.
    ``bucket_bytes``: bytes of gradients that are exchanged together.
    ``cycle``: seconds between two checks for gradients that are ready; 0: each bucket starts when it is full.
    ``gradient_scale``: bytes sent for each byte of gradients; ``weight_scale``: for each byte of gathered weights.
    ``gathers``: how often each unit's weights are gathered over ``shard`` for a micro-batch.
    ``activation_sums``: blocking sums of a unit's activations over ``tensor``, per micro-batch, half of them in the
    forward pass.
    ``shards_optimizer``: whether each rank steps for a fraction of the weights, and sends them to the others.
    ``period``: updates from one exchange to the next; if above 1, weights are exchanged, after the step.
    ``copies``: whether one process copies the weights to all devices before each forward pass, and collects gradients.
    ``schedule``, ``stages_per_rank``: of a pipeline.
    """

    layout: Layout = field(default_factory=Layout)
    overlaps: bool = False
    bucket_bytes: float = 25 * MEGABYTE
    cycle: float = 0.0
    gradient_scale: float = 1.0
    weight_scale: float = 1.0
    gathers: int = 0
    activation_sums: int = 0
    shards_optimizer: bool = False
    period: int = 1
    copies: bool = False
    schedule: str = "auto"
    stages_per_rank: int = 1
