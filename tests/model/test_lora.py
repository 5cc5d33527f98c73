"""The page's model with adapters of peft: they alone are trained, saved and resumed, under DDP too."""

import re

import pytest
import torch

from manyheads.runner.run.run_folder import RunFolder
from tests.conftest import ROOT
from tests.optional_wings import load

pytestmark = [pytest.mark.needs("peft"), pytest.mark.ci, pytest.mark.processes]
COMMON = ("trainer.device=cpu", "launcher.threads_per_rank=1", "data.batch_size=64", "trainer.limit_train=6")


@pytest.fixture
def adapted(tmp_path, run_command):
    """A function that trains the page's model on a base, in a folder of that name."""
    page = (ROOT / "docs" / "other-libraries.md").read_text()
    (code,) = re.findall(r"```python\n(# lora.py\n.*?)```", page, re.DOTALL)
    (tmp_path / "lora.py").write_text(code)
    done = run_command(*COMMON, "model=lora.py:network", "trainer.epochs=1", "hydra.run.dir=base")
    assert done.code == 0, done.err

    def train(name: str, *more: str) -> RunFolder:
        words = ("model=lora.py:Lora", "+model.base=base/checkpoints/last.pt", "trainer.epochs=2", "parallel=ddp")
        done = run_command(*COMMON, *words, "launcher.nproc_per_node=2", f"hydra.run.dir={name}", *more)
        assert done.code == 0, done.err
        return RunFolder(tmp_path / name)

    return train


def stored(run: RunFolder) -> dict[str, torch.Tensor]:
    return torch.load(run.last_checkpoint, weights_only=True)["model"]


def test_adapters_alone_are_saved_and_resumed_to_the_bit(adapted, tmp_path, monkeypatch):
    whole = adapted("whole")
    assert {name.rsplit(".", 3)[1] for name in stored(whole)} == {"lora_A", "lora_B"}
    assert sum(one.numel() for one in stored(whole).values()) == 12_840
    adapted("cut", "trainer.stop_after=8")
    resumed = adapted("resumed", "checkpoint.resume=cut/checkpoints/last.pt")
    assert resumed.read_result()["weights_sha256"] == whole.read_result()["weights_sha256"]
    base = torch.load(tmp_path / "base/checkpoints/last.pt", weights_only=True)["model"]
    monkeypatch.chdir(tmp_path)
    model = load(whole.path, which="last").model
    assert torch.equal(model.adapted.base_model.model[1].base_layer.weight, base["1.weight"])
    assert model.adapted.base_model.model[1].lora_B.default.weight.abs().sum() > 0
