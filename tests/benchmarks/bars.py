"""What is measured against what, and how much of it a run through this project may cost at most."""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tests.benchmarks import (
    checks,
    crowded,
    defaults,
    features,
    loop,
    memory,
    neighbour,
    photos,
    ranks,
    settings,
    sharing,
    start,
    sweep,
    training,
)
from tests.benchmarks.measure import Comparison
from tests.benchmarks.start import ACCELERATE, BARE, OURS_TORCHRUN, SPAWN


class Bar(NamedTuple):
    """``candidate`` in time, or memory, is to be at most ``limit`` times ``against``."""

    candidate: str
    against: str
    limit: float


PEERS = ("Lightning Fabric, no metrics", "Accelerate, no metrics", "Lightning Trainer, CSV")
LOOP = [
    Bar(loop.OURS, loop.BARE, 1.10),
    Bar(loop.OURS, loop.UNWATCHED, 1.01),
    Bar(loop.OURS, loop.UNRECORDED, 1.01),
    Bar(loop.OURS, loop.AUTOMATIC, 1.02),
]
WITH_LOADER = [Bar(loop.OURS, loop.OVER_LOADER, 1.0), *(Bar(loop.OURS, peer, 1.0) for peer in PEERS)]
PHOTOS = [Bar(photos.OURS, other, 1 / times) for other, times in photos.BARS.items()]

BARS: dict[Callable[[], Comparison], list[Bar]] = {
    loop.measure: LOOP,
    loop.with_loader: WITH_LOADER,
    loop.by_default: LOOP,
    loop.with_loader_by_default: WITH_LOADER,
    **{
        defaults.of(model, ranks): [Bar(defaults.OURS, defaults.BY_HAND, 1.05)]
        for model in defaults.MODELS
        for ranks in (1, 2)
    },
    **{
        settings.of(*row): [Bar(settings.DEFAULT, other, 1.05) for other in (defaults.BY_HAND, *others)]
        for row, others in settings.ROWS.items()
    },
    ranks.measure: [Bar(loop.OURS, ranks.PLAIN, 1.05), Bar(loop.OURS, ranks.TUTORIAL, 1 / 2)],
    **{
        sharing.of(strategy): [
            Bar(sharing.OURS, sharing.THEIRS, 1.03 if strategy in ("fsdp", "zero1") else 1.0),
            Bar(sharing.OURS_CPU, sharing.THEIRS_CPU, math.inf),
        ]
        for strategy in sharing.ROWS
    },
    **{
        measure: [Bar(features.OURS, features.BY_HAND, 1.10)]
        for measure in (features.metrics, features.evaluation, features.transforms, features.text)
    },
    **{training.of(name): [Bar(features.OURS, features.BY_HAND, 1.10)] for name in training.ROWS},
    **{
        checks.of(name): [
            Bar(checks.SPIKES, checks.NONE, 1.3),
            *(Bar(each, checks.NONE, limit) for each, limit in zip(checks.VERIFIED, (3.5, 1.3, 1.05), strict=True)),
        ]
        for name in checks.MODELS
    },
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
    neighbour.measure: [
        Bar(neighbour.OURS, neighbour.PASSIVE, 1 / 0.9),
        Bar(neighbour.DEFAULT, neighbour.ACTIVE, 1.05),
        Bar(neighbour.DEFAULT, neighbour.OURS, math.inf),  # what other processes on the cores cost by default
    ],
    **{
        crowded.threads(neighbours): [
            *(Bar(crowded.DEFAULT, crowded.fixed(count), 1.1) for count in (crowded.FEW, crowded.all_threads())),
            Bar(crowded.DEFAULT, crowded.SCRIPT, 1.0),
        ]
        for neighbours in (0, 2)
    },
    **{
        crowded.loaders(neighbours): [
            Bar(crowded.loading(0), crowded.loading(count), 1.0) for count in crowded.LOADERS[1:]
        ]
        for neighbours in (0, 2)
    },
    memory.measure: [Bar(SPAWN, BARE, 1.1), Bar(OURS_TORCHRUN, BARE, 1.4)],
}


HEAD = """  ratio, where its median is (of fewer than 20 rounds: the lowest to the highest), its limit; * is above it
"""


def lines(comparison: Comparison, bars: list[Bar]) -> Iterator[str]:
    """A line of at most 120 columns for each bar, as HEAD says; not for peers that are not here."""
    for bar in bars:
        if {bar.candidate, bar.against} <= comparison.seconds.keys():
            ratio, *extremes = comparison.ratio(bar.candidate, bar.against)
            low, high = comparison.interval(bar.candidate, bar.against) or extremes
            mark, limit = "*" if ratio > bar.limit else " ", f"{bar.limit:.3g}" if math.isfinite(bar.limit) else ""
            yield f"{mark} {ratio:.2f} {low:.2f} to {high:.2f} {limit:5} {bar.candidate} / {bar.against}"
