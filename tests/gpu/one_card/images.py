"""ResNet-50 and ViT-B on ready batches: the benchmark's loops by hand and by ours, in turns in one process."""

import tempfile
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from manyheads.runner.machine import hardware
from tests.benchmarks.gpu import by_hand, ours
from tests.benchmarks.gpu.case import BEST, READY, WITHOUT_CONVOLUTIONS, Case, Setup
from tests.benchmarks.gpu.case import BY_HAND as HAND
from tests.benchmarks.gpu.case import OURS as MANYHEADS
from tests.gpu.one_card.turns import BY_HAND, OURS, Times, in_turns

NETWORKS = {"ResNet-50": "resnet50", "ViT-B": "vit_b_16"}
WAYS = {BY_HAND: (HAND, by_hand.measure), OURS: (MANYHEADS, ours.measure)}


@dataclass(frozen=True)
class Turn(Case):
    """Without the benchmark's profile, which would slow down the turns after it."""

    @property
    def is_profiled(self) -> bool:
        return False


def turn(loop: str, model: str, *, compiles: bool, rehearses: bool) -> Turn:
    precision = "fp32" if rehearses else BEST  # of which CPUs are slow
    return Turn(loop, model, READY, precision, not model.startswith(WITHOUT_CONVOLUTIONS), compiles)


def setup(scratch: Path, *, rehearses: bool) -> Setup:
    size, batch, steps, device = (32, 2, 2, "cpu") if rehearses else (224, 256, 30, "cuda")
    return Setup(device, batch, size, steps, cores=hardware.cpu_cores(), photos=scratch, scratch=scratch)


def overrides(model: str, *, compiles: bool) -> tuple[str, ...]:
    """Those of ours on a GPU."""
    case = turn(MANYHEADS, model, compiles=compiles, rehearses=False)
    return tuple(ours.overrides(case, setup(Path("unused"), rehearses=False)))


def times(model: str, *, compiles: bool, rehearses: bool) -> Times:
    with tempfile.TemporaryDirectory() as scratch:
        here = setup(Path(scratch), rehearses=rehearses)

        def measured(way: str) -> float:
            loop, measure = WAYS[way]
            case = turn(loop, model, compiles=compiles, rehearses=rehearses)
            with tempfile.TemporaryDirectory(dir=scratch) as own:
                return measure(case, replace(here, scratch=Path(own))).seconds_per_step

        return in_turns({way: partial(measured, way) for way in WAYS})
