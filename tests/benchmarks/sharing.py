"""Strategies whose ranks share a model, beside torch's own by hand: a GPT of 10 M parameters on two ranks over gloo.

A run with default settings, but for more rows in steps.csv, makes UPDATES updates, the loop by hand makes as many with
the same batches, and so on in turns. Both begin with the same weights, and the losses of every turn have to agree.
Besides seconds, CPU time of both ranks is compared, on which other programs have less influence.
"""

import json
import math
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
import torch.distributed as dist
from torch.multiprocessing import spawn  # type: ignore[attr-defined]

from manyheads.runner.data.rank.batches import Batch
from manyheads.runner.model.rank.gpt import GPT
from manyheads.runner.records.load_run import read_columns
from manyheads.runner.run.rank_info import RankInfo
from manyheads.runner.run.run_folder import RunFolder
from tests.benchmarks.measure import Comparison
from tests.benchmarks.shared_by_hand import BY_HAND, LR, MICRO_BATCHES, RANKS, ByHand
from tests.in_process import attempt, config

UPDATES = 5  # of a turn, as many as between two rows of steps.csv
TOLERANCE = 1e-3  # of a turn's mean loss, relative: sums in another order, enlarged by AdamW
SIZES = {"num_classes": 256, "depth": 6, "width": 384, "heads": 6}
OURS, THEIRS = "manyheads, default settings", "torch's own by hand"
OURS_CPU, THEIRS_CPU = (f"{name}, CPU time" for name in (OURS, THEIRS))
COMMON = (
    *("model=gpt", "task=language_model", "data=stdlib_text", "data.block_size=32", "data.max_tokens=400000"),
    *("data.batch_size=4", "optimizer=adamw", f"optimizer.lr={LR}", "scheduler=constant", "trainer.device=cpu"),
    *("trainer.evaluate_every=0", "checkpoint.every=0"),
    *(f"trainer.log_every={UPDATES}", f"launcher.nproc_per_node={RANKS}"),
    *(f"model.{key}={size}" for key, size in SIZES.items() if key != "num_classes"),
)
ROWS: dict[str, tuple[str, ...]] = {
    "tensor": ("parallel=tensor",),
    "sequence": ("parallel=tensor", "parallel.sequence=true"),
    "pipeline": ("parallel=pipeline", f"trainer.grad_accumulation={MICRO_BATCHES}", "parallel.stages=[blocks.3]"),
    "fsdp": ("parallel=fsdp",),
    "zero1": ("parallel=zero1",),
}


class Turns:
    """A run's loader, which has the loop by hand follow UPDATES updates behind. ``seconds``: of each turn, by name."""

    def __init__(self, loader: Any, hand: ByHand):
        self._loader, self._hand = loader, hand
        self.seconds: dict[str, list[float]] = {name: [] for name in (OURS, THEIRS, OURS_CPU, THEIRS_CPU)}
        self.losses: list[list[float]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def epoch(self, epoch: int, first_update: int = 0, *, continues: bool = False) -> Iterator[Batch]:
        updates: list[list[Batch]] = [[]]
        start = self._now()
        for batch in self._loader.epoch(epoch, first_update, continues=continues):
            if len(updates[-1]) == self._hand.micro_batches:
                updates.append([])
            if len(updates) > UPDATES:
                self._ended(OURS, OURS_CPU, start)
                self._by_hand(updates[:-1])
                updates, start = [[]], self._now()
            updates[-1].append(batch)
            yield batch

    def _by_hand(self, updates: list[list[Batch]]) -> None:
        start = self._now()
        losses = [self._hand.update(batches) for batches in updates]
        self._ended(THEIRS, THEIRS_CPU, start)
        self.losses.append([float(loss) for loss in losses if loss is not None])

    def _now(self) -> tuple[float, float]:
        dist.barrier()
        return time.perf_counter(), time.process_time()

    def _ended(self, name: str, cpu: str, start: tuple[float, float]) -> None:
        self.seconds[name].append(time.perf_counter() - start[0])
        self.seconds[cpu].append(time.process_time() - start[1])


def of(strategy: str) -> Callable[[], Comparison]:
    """Measures one strategy."""

    def measure(rounds: int = 20) -> Comparison:
        with tempfile.TemporaryDirectory() as folder:
            torch.manual_seed(0)
            torch.save(GPT(**SIZES).state_dict(), f"{folder}/weights.pt")  # type: ignore[arg-type]
            spawn(_rank, args=(folder, strategy, rounds), nprocs=RANKS)
            return Comparison(**json.loads((Path(folder) / "comparison.json").read_text()))

    measure.__module__, measure.__name__ = __name__, strategy
    return measure


def _rank(rank: int, folder: str, strategy: str, rounds: int) -> None:
    os.environ["MANYHEADS_MEETING"] = f"{folder}/meet"
    os.environ["TERM"] = "dumb"
    updates = UPDATES * (1 + rounds) + 1  # a turn warms up; the last update has the loader take the last turn's time
    overrides = (*COMMON, *ROWS[strategy], f"model.pretrained={folder}/weights.pt", f"trainer.max_steps={updates}")
    session = attempt(Path(folder) / "run", config(*overrides), place=RankInfo(rank, rank, RANKS))
    trainer, parallel = session.trainer, session.parallel
    model = GPT(**SIZES)  # type: ignore[arg-type]
    model.load_state_dict(torch.load(f"{folder}/weights.pt"))
    turns = Turns(trainer.train, BY_HAND[strategy](model, rank))
    trainer.update.prime(trainer.train.example, warm_up=True)
    trainer.train = turns  # type: ignore[assignment]
    trainer.fit(lambda **_: None, due_after_step=lambda _: False)
    trainer.close()
    everywhere = parallel.gather((turns.seconds, turns.losses))
    if rank == 0:
        _check(read_columns(RunFolder(Path(folder) / "run").steps)["loss"], [losses for _, losses in everywhere])
        title = f"updates of a GPT of 10 M parameters, {strategy}, {RANKS} ranks"
        comparison = Comparison(title, THEIRS, _united([seconds for seconds, _ in everywhere]))
        (Path(folder) / "comparison.json").write_text(json.dumps(asdict(comparison)))
    parallel.leave()
    os._exit(0)  # as ranks of a run do: torch 2.15 may abort when the interpreter takes down its wrappers of models


def _united(ranks: list[dict[str, list[float]]]) -> dict[str, list[float]]:
    """Seconds of the slower rank and CPU time of both, without the first turn; the baseline first."""
    over_ranks: dict[str, Callable[..., float]] = {THEIRS: max, OURS: max, THEIRS_CPU: sum, OURS_CPU: sum}
    return {
        name: [united(turn) for turn in zip(*(rank[name] for rank in ranks), strict=True)][1:]
        for name, united in over_ranks.items()
    }


def _check(ours: Sequence[float], by_rank: list[list[list[float]]]) -> None:
    """Raises AssertionError for a turn in which both loops have not trained the same."""
    for turn, losses in enumerate(zip(*by_rank, strict=True)):
        theirs = fmean(fmean(rank) for rank in losses if rank)
        assert math.isclose(ours[turn], theirs, rel_tol=TOLERANCE), f"turn {turn}: {ours[turn]}, by hand {theirs}"
