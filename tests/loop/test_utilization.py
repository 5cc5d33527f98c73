import csv

import pytest
import torch

from manyheads.runner.loop import utilization as module
from manyheads.runner.loop.utilization import flops_per_sample
from manyheads.runner.machine.gpus import PEAKS, peak
from tests.in_process import rows, small, train

PEAK = 1e9
KEEPS = ("model=custom", "model._target_=tests.loop.test_utilization.Keeps")
TEXT = ("data=stdlib_text", "data.max_tokens=2000", "data.block_size=8", "task=language_model", "model=gpt")


def forward_flops(model, image: torch.Tensor) -> int:
    """Of convolutions and linear layers by their shapes: two for each product that is added up."""
    found = 0

    def count(layer, _, output):
        nonlocal found
        inner = layer.weight[0].numel()
        found += 2 * inner * output.numel()

    handles = [
        m.register_forward_hook(count)
        for m in model.modules()
        if getattr(m, "weight", None) is not None and m.weight.ndim > 1
    ]
    model(image)
    for handle in handles:
        handle.remove()
    return found


def test_they_are_those_of_the_products_forward_and_backward(tmp_path):
    run = train(tmp_path, small("model=small_cnn", "model.width=4", "trainer.max_steps=1"))
    update, loader = run.trainer.update, run.trainer.train
    model, batch = update.model, loader.example()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    forward = forward_flops(model, batch.inputs[:1])
    first = 2 * model_input_products(model, batch.inputs[:1])
    found = flops_per_sample(model, update.scores.task, batch)
    assert found == 3 * forward - first  # images need no gradient
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def model_input_products(model, image: torch.Tensor) -> int:
    """Products of the first convolution."""
    first = next(m for m in model.modules() if isinstance(m, torch.nn.Conv2d))
    return first.weight[0].numel() * first(image).numel()


@pytest.mark.parametrize("overrides", [("precision=amp",), ("precision=fp64", "trainer.grad_accumulation=2")], ids=str)
def test_a_run_has_it_where_the_peak_is_known(tmp_path, monkeypatch, capsys, overrides):
    monkeypatch.setattr(module, "peak", lambda device, products: {"half": PEAK, "fp64": PEAK / 2}[products])
    known = train(tmp_path / "known", small(*overrides))
    result = known.folder.read_result()
    most = PEAK if "precision=amp" in overrides else PEAK / 2
    assert result["mfu"] == pytest.approx(result["samples_per_second"] * result["flops_per_sample"] / most)
    assert f"MFU {result['mfu']:.1%}" in capsys.readouterr().out
    with open(known.folder.steps) as file:
        for row in csv.DictReader(file):
            speed = float(row["samples_per_second"])
            assert float(row["mfu"]) == pytest.approx(speed * result["flops_per_sample"] / most)
    monkeypatch.undo()
    plain = train(tmp_path / "plain", small(*overrides))
    assert "mfu" not in plain.folder.read_result()
    assert list(rows(plain.folder.steps)[0]) == list(rows(known.folder.steps)[0])[:-1]
    assert plain.folder.read_result()["weights_sha256"] == result["weights_sha256"]


def test_what_cannot_be_counted_has_none(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "peak", lambda device, products: PEAK)
    run = train(
        tmp_path, small("model=custom", "model._target_=tests.loop.test_utilization.Looks", "trainer.max_steps=1")
    )
    assert "mfu" not in run.folder.read_result()


@pytest.mark.parametrize("model", [KEEPS, TEXT], ids=["custom", "gpt"])
def test_a_model_keeps_no_tensor_without_values(tmp_path, monkeypatch, model):
    """What a model caches at its first batch, such as rotary positions, must be of a real batch."""
    monkeypatch.setattr(module, "peak", lambda device, products: PEAK)
    short = ("trainer.max_steps=1", "trainer.log_every=1", "trainer.evaluate_every=0")
    run = train(tmp_path, small(*model, *short))
    assert run.folder.read_result()["mfu"] > 0


class Keeps(torch.nn.Module):
    """A model that computes a tensor at its first batch, and keeps it outside of its buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 3)
        self.kept: torch.Tensor | None = None

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if self.kept is None:
            self.kept = torch.arange(3, device=images.device)
        return self.layer(images.mean((2, 3)) + self.kept)


class Looks(torch.nn.Module):
    """A model that looks at values, which fake tensors do not have."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 3)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        outputs = self.layer(images.mean((2, 3)))
        return outputs * 2 if outputs.sum().item() > 0 else outputs


@pytest.mark.parametrize(
    ("device", "products", "tera"),
    [
        ("NVIDIA H200", "half", 989),
        ("NVIDIA H100 80GB HBM3", "tf32", 494),
        ("NVIDIA H100 PCIe", "half", 756),
        ("NVIDIA A100-SXM4-80GB", "fp32", 19.5),
        ("NVIDIA A100-SXM4-80GB MIG 3g.40gb", "half", None),
        ("NVIDIA L40S", "half", 362),
        ("NVIDIA L4", "half", 121),
        ("NVIDIA A10G", "half", 70),
        ("NVIDIA A10", "half", 125),
        ("NVIDIA L40", "half", 181),
        ("NVIDIA RTX A6000", "half", 154.8),
        ("NVIDIA GB200", "half", 2500),
        ("NVIDIA B200", "half", 2250),
        ("NVIDIA B300 SXM6 AC", "tf32", None),
        ("NVIDIA H20", "half", 148),
        ("NVIDIA H200 NVL", "half", 835),
        ("NVIDIA GeForce RTX 5090", "half", 209.5),
        ("NVIDIA GeForce RTX 5090 Laptop GPU", "half", None),
        ("Tesla T4", "tf32", None),
        ("NVIDIA GeForce RTX 3090 Ti", "half", None),
        ("cpu", "fp32", None),
    ],
)
def test_what_is_stated_of_a_device(device, products, tera):
    assert peak(device, products) == (None if tera is None else tera * 1e12)


def test_faster_formats_are_not_slower():
    for stated in PEAKS.values():
        assert stated["half"] >= (stated["tf32"] or 0) >= 0
        assert (stated["tf32"] or stated["half"]) >= (stated["fp32"] or 0)
