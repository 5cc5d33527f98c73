"""What is measured against what, and how much of it a run through this project may cost at most."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from tests.benchmarks import features, loop, memory, neighbour, photos, ranks, sharing, start, sweep, training
from tests.benchmarks.measure import Comparison
from tests.benchmarks.start import ACCELERATE, BARE, OURS_TORCHRUN, SPAWN


class Bar(NamedTuple):
    """``candidate`` in time, or memory, is to be at most ``limit`` times ``against``."""

    candidate: str
    against: str
    limit: float


PEERS = ("Lightning Fabric, no metrics", "Accelerate, no metrics", "Lightning Trainer, CSV")
PHOTOS = [Bar(photos.OURS, other, 1 / times) for other, times in photos.BARS.items()]

BARS: dict[Callable[[], Comparison], list[Bar]] = {
    loop.measure: [Bar(loop.OURS, loop.BARE, 1.10), Bar(loop.OURS, loop.UNWATCHED, 1.01)],
    loop.with_loader: [Bar(loop.OURS, loop.OVER_LOADER, 1.0), *(Bar(loop.OURS, peer, 1.0) for peer in PEERS)],
    ranks.measure: [Bar(loop.OURS, ranks.PLAIN, 1.05), Bar(loop.OURS, ranks.TUTORIAL, 1 / 2)],
    **{
        sharing.of(strategy): [Bar(loop.OURS, sharing.by_hand(strategy), 1.05)]
        for strategy in ("fsdp", "zero1", "tensor", "pipeline")
    },
    **{
        measure: [Bar(features.OURS, features.BY_HAND, 1.10)]
        for measure in (features.metrics, features.evaluation, features.transforms, features.text)
    },
    **{training.of(name): [Bar(features.OURS, features.BY_HAND, 1.10)] for name in training.ROWS},
    start.composing: [Bar("python run.py --cfg job", "python -c 'import torch'", 0.5)],
    start.first_step: [
        Bar(SPAWN, BARE, 0.6),
        Bar(OURS_TORCHRUN, BARE, 1.4),  # the real torchrun, with a parent that checks and watches
        Bar(SPAWN, ACCELERATE, 0.5),
        Bar(OURS_TORCHRUN, ACCELERATE, 1.4),
    ],
    sweep.measure: [Bar(SPAWN, sweep.TORCHRUN, 1 / 8), Bar(OURS_TORCHRUN, sweep.TORCHRUN, 1.4)],
    photos.measure: PHOTOS,
    photos.all_cores: PHOTOS,
    neighbour.measure: [Bar(neighbour.OURS, neighbour.PASSIVE, 1 / 0.9)],
    memory.measure: [Bar(SPAWN, BARE, 1.1), Bar(OURS_TORCHRUN, BARE, 1.4)],
}


def lines(comparison: Comparison, bars: list[Bar]) -> Iterator[str]:
    """Rows of a Markdown table: what, against what, the ratio with its spread, the bar; not for peers not here."""
    for bar in bars:
        if {bar.candidate, bar.against} <= comparison.seconds.keys():
            ratio, low, high = comparison.ratio(bar.candidate, bar.against)
            reached = "" if ratio <= bar.limit else ", not reached"
            yield (
                f"| {comparison.name} | {bar.candidate} | {bar.against} | {ratio:.2f} ({low:.2f} to {high:.2f}) | "
                f"{bar.limit:.3g}{reached} |"
            )
