"""The proof that what was timed can also be trained: an epoch or its beginning, an evaluation and a checkpoint.

Timed updates alone would not tell that the memory is too small for an evaluation, or for a larger batch later.
"""

from collections.abc import Mapping
from typing import Any

from manyheads.launchers.launcher import TRAIN
from manyheads.runner.judge.runs import Purpose
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.run.files import remove
from manyheads.runner.run.run_folder import RunFolder

SHARE = 0.01  # of the budget, for the updates of one proof; its evaluation has as many batches


def updates_of(budget: float, seconds: float, per_epoch: int) -> int:
    """How many updates a proof makes. ``budget``: in seconds; ``seconds``: of an update."""
    return max(1, int(min(per_epoch, SHARE * budget / seconds)))


def needing_most(run: RunConfig, updates: int) -> RunConfig:
    """A run of an epoch with so many updates that needs as much memory as any: images of full size, nothing frozen."""
    trainer = {
        "limit_train": updates,
        "limit_val": updates,
        "stop_after": updates,
        "evaluate_every": 1,
        "resize_from": None,
        "test": False,
        "patience": None,
        "max_time": None,
        "swa_start": None,
    }
    checkpoint = {"every": "1epoch", "keep": 0, "keep_every": 0, "keep_hours": 0, "mirror": None}
    changed = run.changed(trainer=trainer, checkpoint=checkpoint, parameters={"freeze_epochs": []})
    return RunConfig.of({**changed.written, "logger": {}})


def _read(folder: RunFolder, result: Mapping[str, Any]) -> Mapping[str, Any]:
    remove(folder.checkpoints)
    return {"metrics": result["metrics"]}


PROOF = Purpose("proof", TRAIN, lambda folder: None, _read)
