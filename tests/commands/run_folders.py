"""Run folders written by hand, as runs leave them."""

import json
import os
from pathlib import Path
from typing import Any

import yaml

from manyheads.runner.run.run_folder import RunFolder

SCORES = {
    "monitor": "val_acc1",
    "metrics": {
        "acc1": {"label": "accuracy", "unit": "%", "direction": "max"},
        "loss": {"label": "loss", "unit": "", "direction": "min"},
    },
}
CONFIG = {
    "name": None,
    "tags": [],
    "notes": None,
    "seed": 1,
    "model": {"_target_": "a.Net", "name": "small_cnn"},
    "parallel": {"name": "single"},
    "trainer": {"epochs": 2},
    "optimizer": {"_target_": "torch.optim.SGD", "name": "sgd", "lr": 0.1},
}


def write_run(
    path: Path, *typed: str, status: str | None = "completed", acc: float = 90.0, started: float = 1.0, **config: Any
) -> RunFolder:
    """A run that ended with ``status``, or None: without a result. ``config``: over CONFIG."""
    folder = RunFolder(path)
    folder.composed.parent.mkdir(parents=True)
    folder.config.write_text(yaml.safe_dump(CONFIG | config, sort_keys=False))
    folder.composed.with_name("overrides.yaml").write_text(yaml.safe_dump(list(typed)))
    folder.provenance.write_text(json.dumps({"format": 1}))
    if status is not None:
        metrics = {"train_loss": 0.5, "val_loss": 1 - acc / 100, "val_acc1": acc}
        result = {"status": status, "wall_seconds": 65.0, "metrics": metrics, "scores": SCORES, "steps": 7}
        folder.result.write_text(json.dumps(result))
    os.utime(folder.config, (started, started))
    return folder
