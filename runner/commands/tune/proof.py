"""The proof that what was timed can also be trained: updates, an evaluation and a checkpoint, on all ranks."""

from collections.abc import Mapping
from typing import Any

from manyheads.launchers.launcher import TRAIN
from manyheads.runner.judge.runs import Purpose
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.run.files import remove
from manyheads.runner.run.run_folder import RunFolder

UPDATES = 5
BATCHES = 2  # of the evaluation; more need no more memory


def needing_most(run: RunConfig) -> RunConfig:
    """A run of a few updates that needs as much memory as the whole: images of full size, and nothing frozen."""
    trainer = {
        "stop_after": UPDATES,
        "evaluate_every": f"{UPDATES}steps",
        "limit_val": BATCHES,
        "resize_from": None,
        "test": False,
        "patience": None,
        "max_time": None,
        "swa_start": None,
    }
    checkpoint = {"every": str(UPDATES), "keep": 0, "keep_every": 0, "keep_hours": 0}
    changed = run.changed(trainer=trainer, checkpoint=checkpoint, parameters={"freeze_epochs": []})
    return RunConfig.of({**changed.written, "logger": {}})


def _read(folder: RunFolder, result: Mapping[str, Any]) -> Mapping[str, Any]:
    remove(folder.checkpoints)
    return {"metrics": result["metrics"]}


PROOF = Purpose("proof", TRAIN, lambda folder: None, _read)
