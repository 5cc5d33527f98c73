"""No update makes the host wait for the GPU, on any machine: with every option, and with what the loop is asked for.

A wait leaves the GPU idle until the host has queued its next work, at each update. Waits inside a kernel of CUDA's are
not seen here, and neither is what a user's own code does. tests/gpu has the same test by torch's own detector.
"""

import pytest
import torch

from manyheads.runner.run.rank_info import RankInfo
from tests.data.table.rows import houses, save
from tests.fake_gpu.cases import FEATURES, GPT, cases
from tests.fake_gpu.device import FakeGPU
from tests.fake_gpu.rank import trainer_on, waits_of

ALLOWED = {  # by the function that waits
    "loop/guards/spikes.py:NotFiniteGradients.reject": "trainer.on_nan=skip: whether the host queues a step",
    "loop/guards/spikes.py:Spikes._common": "trainer.on_spike: the same, by loss and norm",
    "loop/guards/verification.py:Verification._pass": "trainer.verify_every: passes are compared",
    "loop/guards/corruption.py:Digests.values": "trainer.verify_every: digests are compared",
    "loop/guards/corruption.py:are_same": "trainer.verify_every: tensors are compared",
}
EXCLUDED = {  # by case: what cannot run on tensors without values
    **{f"{group}=apex": "Apex's CUDA code reads the tensors" for group in ("parallel", "precision")},
    **{f"optimizer=fused_{name}": "as Apex" for name in ("adam", "lamb", "novograd", "sgd")},
    "callbacks=[profile]": "torch's profiler asks the driver for events",
    "parallel=horovod": "Horovod's C++ code reads the tensors",
    "parallel=replicated": "torchft connects to services of its own",
}
OFTEN = ("task", "parallel")  # groups whose cases `make test` runs; the others belong to `make test-ci`
QUICK = {name for name in cases() if name.startswith(OFTEN)}


def marked(name: str) -> object:
    return name if name in QUICK else pytest.param(name, marks=pytest.mark.ci)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [marked(name) for name in cases() if name not in EXCLUDED])
def test_no_update_waits(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save(tmp_path / "houses.csv", houses(64))
    waits = waits_of(tmp_path / "run", *cases()[name])
    assert [wait for wait in waits if wait.where not in ALLOWED] == []


def test_each_exception_is_needed(tmp_path):
    """What no longer waits leaves the list."""
    names = ("NaN skipped", "spikes", "verification")
    waits = [wait for name in names for wait in waits_of(tmp_path / name, *FEATURES[name])]
    assert {wait.where for wait in waits} == {*ALLOWED}


PIPELINES = {
    "1f1b": ("trainer.grad_accumulation=2",),
    "interleaved": ("trainer.grad_accumulation=4", "parallel.stages_per_rank=2", "model.depth=4"),
}


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("schedule", ["1f1b", pytest.param("interleaved", marks=pytest.mark.ci)])
def test_no_rank_of_a_pipeline_waits(schedule, rank, tmp_path):
    """The first one embeds, the last one has the loss; what the other one would send has no values anyway."""
    own = (*GPT, *PIPELINES[schedule], "parallel=pipeline", f"parallel.schedule={schedule}")
    place = RankInfo(rank=rank, local_rank=0, world_size=2)
    assert waits_of(tmp_path / "run", *own, "launcher.nproc_per_node=2", place=place) == []


class Waiting(torch.nn.Module):
    """Reads a value, copies one to the device, and takes what a mask leaves."""

    def __init__(self, *, num_classes: int, how: str):
        super().__init__()
        self.head, self.how = torch.nn.Linear(192, num_classes), how

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits = self.head(images.flatten(1))
        if self.how == "item":
            return logits * (2 if logits.sum() > 0 else 1)
        if self.how == "tensor":
            return logits * torch.tensor([2.0], device=logits.device)
        if self.how == "numpy":
            return logits * float(logits.detach().cpu().numpy().shape[0])
        if self.how == "synchronize" and logits.is_cuda:
            torch.cuda.synchronize()
        return logits[logits[:, 0] == logits[:, 0]] if self.how == "mask" else logits


@pytest.mark.parametrize(
    ("how", "operation"),
    [
        ("nothing", None),
        ("item", "_local_scalar_dense"),
        ("tensor", "_to_copy between CPU and GPU"),
        ("numpy", "_to_copy between CPU and GPU"),
        ("mask", "index by a mask"),
        ("synchronize", "torch.cuda.synchronize"),
    ],
)
def test_planted_waits_are_seen(tmp_path, how, operation):
    own = ("model=custom", f"model._target_={__name__}.Waiting", f"+model.how={how}")
    seen = {wait.operation for wait in waits_of(tmp_path, *own)}
    assert seen - {"index_put by a mask"} == ({operation} if operation else set())  # the gradient of a mask


def test_gradients_are_computed_on_it(tmp_path):
    """Autograd's own engine runs: hooks on gradients are called, with tensors of the GPU."""
    with trainer_on(FakeGPU(), tmp_path) as trainer:
        seen = []
        for parameter in trainer.update.model.parameters():
            parameter.register_post_accumulate_grad_hook(lambda arrived: seen.append(arrived.grad.device.type))
        trainer.update([trainer.train.example()], number=0, wants_norm=False)
    assert seen == ["cuda"] * len([*trainer.update.model.parameters()])
