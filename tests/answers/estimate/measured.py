"""Ranks that train, then make one more update under torch's own profiler and with hooks on saved tensors."""

import json
from collections import Counter
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.profiler import ProfilerActivity, profile

from manyheads.launchers.launch import launch, prepare
from manyheads.runner.loop import rank_main as worker
from manyheads.runner.loop.session import Session
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.run.heartbeat import Heartbeat
from manyheads.runner.run.run_folder import RunFolder
from tests.in_process import small
from tests.parallel.together import CASES, trained

COLLECTIVES = {  # as Gloo names its work; it reduces and scatters by an all-reduce
    "gloo:all_reduce": "all-reduce",
    "gloo:all_gather": "all-gather",
    "gloo:_all_gather_base": "all-gather",
    "gloo:broadcast": "broadcast",
    "gloo:send": "send",
    "gloo:recv": "receive",
}


def measure(path: Path, ranks: int, cases: dict[str, dict[str, Any]]) -> None:
    """Train every case's config in ``path / name`` on so many ranks, and leave what each rank measured there."""
    folder = RunFolder(path)
    folder.write_config(small("parallel=ddp", f"launcher.nproc_per_node={ranks}", f"data.batch_size={ranks}"))
    (path / CASES).write_text(json.dumps(cases))
    launch(prepare(folder), main="tests.answers.estimate.measured")


def main(path: str) -> NoReturn:
    """Be one of these ranks. Ends the process."""
    worker.main(path, work=work)


def work(_: RunConfig, parallel: Any, folder: RunFolder, heartbeat: Heartbeat) -> None:
    for name, session in trained(parallel, folder, heartbeat):
        (folder.path / name / f"measured.{session.parallel.rank}.json").write_text(json.dumps(measured(session)))


def measured(session: Session) -> dict[str, Any]:
    """Of one more update: calls and bytes by kind of collective; the most that was saved for the backward pass."""
    trainer, update = session.trainer, session.update
    batches = [trainer.train.example() for _ in range(trainer.settings.grad_accumulation)]
    update.model.train()
    saved = Saved()
    with profile(activities=[ProfilerActivity.CPU], acc_events=True) as profiled, saved.hooks():
        update(batches, number=0, wants_norm=False)
    names = [event.name for event in profiled.events()]
    calls = Counter(kind for name in names if (kind := COLLECTIVES.get(name)) is not None)
    return {"calls": calls, "activations": saved.most}


class Saved:
    """Counts by the addresses of memory, which only real tensors have. A weight, or a view of one, does not count."""

    def __init__(self) -> None:
        self.sizes: dict[int, list[int]] = {}  # by address: how often, bytes
        self.now = self.most = 0

    def hooks(self) -> saved_tensors_hooks:
        return saved_tensors_hooks(self.pack, lambda kept: kept.tensor)

    def pack(self, tensor: torch.Tensor) -> "Kept":
        is_weight = isinstance(tensor if tensor._base is None else tensor._base, nn.Parameter)
        return Kept(None if is_weight else self, tensor.detach())


class Kept:
    def __init__(self, saved: Saved | None, tensor: torch.Tensor):
        self.saved, self.tensor = saved, tensor
        if saved is not None:
            storage = tensor.untyped_storage()
            self.at = storage.data_ptr()
            known = saved.sizes.setdefault(self.at, [0, storage.nbytes()])
            known[0] += 1
            saved.now += known[1] * (known[0] == 1)
            saved.most = max(saved.most, saved.now)

    def __del__(self) -> None:
        if self.saved is not None:
            known = self.saved.sizes[self.at]
            known[0] -= 1
            if not known[0]:
                self.saved.now -= known[1]
                del self.saved.sizes[self.at]
