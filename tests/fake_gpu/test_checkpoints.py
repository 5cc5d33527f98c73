"""How checkpoints leave the GPU: copies for which the host does not wait, then one wait, and then bytes are written."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor

from manyheads.runner.checkpoint.rank import host_copies
from manyheads.runner.checkpoint.rank.checkpoints import CheckpointStore
from manyheads.runner.checkpoint.rank.lazy import tensors
from manyheads.runner.checkpoint.rank.load import complete
from manyheads.runner.loop.state import TrainingState
from manyheads.runner.run.run_folder import RunFolder
from tests.fake_gpu.device import FakeGPU, on_gpu
from tests.fake_gpu.rank import trainer_on
from tests.optional_wings import require_wing


class Watching(FakeGPU):
    """Notes copies from the GPU, waits for it, and pinned memory, in order."""

    def __init__(self):
        super().__init__()
        self.events = []

    def note(self, operation):
        self.events.append(operation)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.copy_.default and on_gpu(args[1]) and not on_gpu(args[0]):
            self.events.append("copy" if len(args) > 2 and args[2] else "copy that waits")
        if (kwargs or {}).get("pin_memory"):
            self.events.append("pin")
        return super().__torch_dispatch__(func, types, args, kwargs)


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("format", ["single", "sharded"])
def test_the_host_waits_once(tmp_path, monkeypatch, format, asynchronous):
    monkeypatch.setattr(host_copies, "PLAIN", (FakeTensor,))
    gpu = Watching()
    is_single = format == "single"
    owner = torch if is_single else require_wing("manyheads.runner.checkpoint.sharded.rank.shard_files")
    write = getattr(owner, name := "save" if is_single else "whole_write")
    monkeypatch.setattr(owner, name, lambda *args: (gpu.events.append("write"), write(*args)))
    with trainer_on(gpu, tmp_path, "optimizer=adamw", "trainer.ema_decay=0.9") as trainer:
        trainer.update([trainer.train.example()], number=0, wants_norm=False)
        store = CheckpointStore(RunFolder(tmp_path), every=1, keep=0, format=format, asynchronous=asynchronous)
        state = TrainingState(trainer)
        count = sum(on_gpu(tensor) for _, tensor in tensors(state.whole()))
        for pinned in (["pin"], []):
            gpu.events.clear()
            store.save(state, trainer.update.parallel, step=1, best=True)
            store.wait_for_save()
            copied = [*pinned, *["copy"] * count, "Stream.synchronize"]
            assert gpu.events[: len(copied)] == copied
            assert {*gpu.events[len(copied) :]} == {"write"}
    assert complete(RunFolder(tmp_path).last_checkpoint)["progress"]["step"] == 0
