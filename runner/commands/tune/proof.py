"""A run that proves that a timed configuration can also train: updates, an evaluation and a checkpoint.

Timed updates alone do not show whether memory suffices for an evaluation, or for larger inputs later.
"""

from collections.abc import Mapping
from typing import Any

from manyheads.launchers.launcher import TRAIN
from manyheads.runner.judge.runs import Purpose
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.run.files import remove
from manyheads.runner.run.run_folder import RunFolder

SHARE = 0.01  # fraction of the budget for the updates of one proof; its evaluation has equally many batches


def updates_of(budget: float, seconds: float, per_epoch: int) -> int:
    """The number of updates in a proof. ``budget``: in seconds; ``seconds``: per update."""
    return max(1, int(min(per_epoch, SHARE * budget / seconds)))


def needing_most(run: RunConfig, updates: int) -> RunConfig:
    """The run with one epoch of this many updates and the highest memory use: full-size images, nothing frozen."""
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
