"""Ranks that train, then make one more update under torch's own profiler and with hooks on saved tensors."""

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.profiler import ProfilerActivity, profile

from manyheads.launchers.launch import launch
from manyheads.runner.loop import main as worker
from manyheads.runner.loop.session import Session
from manyheads.runner.run.heartbeat import Heartbeat
from manyheads.runner.run.rank_env import Place
from manyheads.runner.run.run_folder import RunFolder
from tests.in_process import small, train

CASES = "cases.json"
GLOO = {
    "all_reduce": "all-reduce",
    "all_gather": "all-gather",
    "_all_gather_base": "all-gather",
    "reduce_scatter": "reduce-scatter",
    "_reduce_scatter_base": "reduce-scatter",
    "broadcast": "broadcast",
    "send": "send",
    "recv": "receive",
}


def measure(path: Path, ranks: int, cases: dict[str, dict[str, Any]]) -> None:
    """Train every case's config in ``path / name`` on so many ranks, and leave what each rank measured there."""
    folder = RunFolder(path)
    folder.write_config(small("parallel=ddp", f"launcher.nproc_per_node={ranks}", f"data.batch_size={ranks}"))
    (path / CASES).write_text(json.dumps(cases))
    launch(folder, main="tests.estimate.measured")


def main(path: str) -> NoReturn:
    """Be one of these ranks. Ends the process."""
    worker.main(path, run=run)


def run(config: dict[str, Any], parallel: Any, folder: RunFolder, heartbeat: Heartbeat) -> None:
    here = Place(parallel.rank, parallel.local_rank, parallel.world_size)
    for name, case in json.loads((folder.path / CASES).read_text()).items():
        parallel.gather("all have done with the last one")
        parallel.leave()
        os.environ["MANYHEADS_INIT_METHOD"] = f"file://{folder.path}/{name}.meeting"
        if here.rank == 0:
            (folder.path / name).mkdir()
        session = train(folder.path / name, case, place=here)
        parallel = session.parallel
        (folder.path / name / f"measured.{here.rank}.json").write_text(json.dumps(measured(session)))
        heartbeat.beat()


def measured(session: Session) -> dict[str, Any]:
    """Of one more update: calls and bytes by kind of collective; the most that was saved for the backward pass."""
    trainer, update = session.trainer, session.update
    batches = [trainer.train.example() for _ in range(trainer.settings.grad_accumulation)]
    update.model.train()
    saved = Saved(update.parallel.unwrap(update.model))
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiled, saved.hooks():
        update(batches, number=0, wants_norm=False)
    calls = Counter(
        GLOO[event.name.removeprefix("gloo:")] for event in profiled.events() if event.name.startswith("gloo:")
    )
    return {"calls": calls, "activations": saved.most}


class Saved:
    """Counts by the addresses of memory, which only real tensors have."""

    def __init__(self, model: nn.Module):
        self.weights = {p.untyped_storage().data_ptr() for p in model.parameters() if not hasattr(p, "to_local")}
        self.sizes: dict[int, list[int]] = {}  # by address: how often, bytes
        self.now = self.most = 0

    def hooks(self) -> saved_tensors_hooks:
        return saved_tensors_hooks(lambda tensor: Kept(self, tensor), lambda kept: kept.tensor)


class Kept:
    def __init__(self, saved: Saved, tensor: torch.Tensor):
        self.saved, self.tensor = saved, tensor.detach()
        storage = self.tensor.untyped_storage()
        self.at = storage.data_ptr()
        known = saved.sizes.setdefault(self.at, [0, storage.nbytes()])
        known[0] += 1
        if known[0] == 1 and self.at not in saved.weights:
            saved.now += known[1]
            saved.most = max(saved.most, saved.now)

    def __del__(self) -> None:
        known = self.saved.sizes[self.at]
        known[0] -= 1
        if not known[0]:
            self.saved.now -= 0 if self.at in self.saved.weights else known[1]
            del self.saved.sizes[self.at]
