"""LAMB, Lion, Muon and SAM against their formulas, and each in a run that is resumed."""

import math

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.optimizer.rank.lamb import LAMB
from manyheads.runner.optimizer.rank.lion import Lion
from manyheads.runner.optimizer.rank.muon import Muon, orthogonal
from tests.in_process import completed_for_here as complete
from tests.in_process import small, train, weights
from tests.loop.test_trainer import assert_same, synthetic
from tests.torch_versions import from_torch

DECAY, LR = 0.1, 0.02


def stepped(make, *, steps: int = 4) -> tuple[list[torch.Tensor], list[list[torch.Tensor]]]:
    """Weights after some steps of an optimizer, and before each step the weights and gradients that it met."""
    torch.manual_seed(0)
    parameters = [nn.Parameter(torch.randn(shape, dtype=torch.float64)) for shape in ((4, 3), (5,), (2, 3, 3, 3))]
    parameters[1].data.zero_()  # a weight without length
    optimizer, met = make(parameters), []
    for step in range(steps):
        for parameter in parameters:
            parameter.grad = torch.sin(3 * parameter.detach() + step) + 0.1
        met.append([parameter.grad.clone() for parameter in parameters])
        optimizer.step()
    return [parameter.detach() for parameter in parameters], met


def begun() -> list[torch.Tensor]:
    torch.manual_seed(0)
    found = [torch.randn(shape, dtype=torch.float64) for shape in ((4, 3), (5,), (2, 3, 3, 3))]
    found[1].zero_()
    return found


def test_lion_is_its_formula():
    found, met = stepped(lambda p: Lion(p, lr=LR, betas=(0.9, 0.99), weight_decay=DECAY))
    expected, momenta = begun(), [0.0, 0.0, 0.0]
    for gradients in met:
        for index, g in enumerate(gradients):
            step = torch.sign(0.9 * momenta[index] + 0.1 * g)
            expected[index] = expected[index] - LR * (step + DECAY * expected[index])
            momenta[index] = 0.99 * momenta[index] + 0.01 * g
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_lamb_is_its_formula():
    found, met = stepped(lambda p: LAMB(p, lr=LR, eps=1e-6, weight_decay=DECAY))
    expected, first, second = begun(), [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]
    for count, gradients in enumerate(met, 1):
        for index, g in enumerate(gradients):
            first[index] = 0.9 * first[index] + 0.1 * g
            second[index] = 0.999 * second[index] + 0.001 * g**2
            ratio = first[index] / (1 - 0.9**count) / ((second[index] / (1 - 0.999**count)).sqrt() + 1e-6)
            step = ratio + DECAY * expected[index]
            length = expected[index].norm()
            trust = length / step.norm() if length > 0 else 1.0
            expected[index] = expected[index] - LR * trust * step
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


def test_muon_is_adamw_for_what_is_no_matrix_or_is_said_to_be():
    def of(method: str):
        return lambda p: Muon(
            [{"params": p[:1], "method": method}, {"params": p[1:2]}], lr=LR, betas=(0.9, 0.999), weight_decay=DECAY
        )

    adamw, _ = stepped(lambda p: torch.optim.AdamW(p, lr=LR, weight_decay=DECAY))
    mixed, _ = stepped(of("muon"))
    all_adamw, _ = stepped(of("adamw"))
    assert torch.equal(mixed[1], adamw[1])
    assert torch.equal(all_adamw[0], adamw[0])
    assert not torch.allclose(mixed[0], adamw[0])


def test_muon_with_sgd_is_the_formula_of_airbench():
    def made(p: list[nn.Parameter]) -> Muon:
        own = {"method": "sgd", "momentum": 0.85, "lr": 3 * LR, "weight_decay": DECAY}
        groups = [{"params": p[2:]}, {"params": p[:2], **own}]
        return Muon(groups, lr=LR, momentum=0.6, ns_steps=3, step_size="orthogonal", normalize=True)

    found, met = stepped(made)
    expected, momenta = begun(), [torch.zeros_like(weight) for weight in begun()]
    for gradients in met:
        for index, weight in enumerate(expected):
            is_filter = index == 2
            momentum = 0.6 if is_filter else 0.85
            gradient = gradients[index] + (0 if is_filter else DECAY) * weight
            momenta[index] = momentum * momenta[index] + gradient
            way = gradient + momentum * momenta[index]
            if is_filter:
                weight = weight * (len(weight) ** 0.5 / weight.norm())
                way = orthogonal(way.flatten(1), steps=3).view_as(weight)
            expected[index] = weight - (1 if is_filter else 3) * LR * way
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-9)
    sgd, _ = stepped(lambda p: torch.optim.SGD(p, lr=3 * LR, momentum=0.85, nesterov=True, weight_decay=DECAY))
    torch.testing.assert_close(found[:2], sgd[:2], rtol=1e-12, atol=1e-12)


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="torch has it from 2.9 on")
def test_muon_is_torch_s_own_but_for_its_bfloat16():
    options = {"lr": LR, "weight_decay": DECAY, "momentum": 0.95}
    found, _ = stepped(lambda p: Muon(p[:1], **options))
    theirs, _ = stepped(lambda p: torch.optim.Muon(p[:1], adjust_lr_fn="match_rms_adamw", **options))
    way, their_way = found[0] - begun()[0], theirs[0] - begun()[0]
    assert (way - their_way).norm() < 0.05 * their_way.norm()


@pytest.mark.parametrize("shape", [(6, 4), (4, 6), (5, 5)])
def test_orthogonal_brings_singular_values_near_one(shape):
    torch.manual_seed(1)
    matrix = torch.randn(shape, dtype=torch.float64)
    values = torch.linalg.svdvals(orthogonal(matrix, steps=5))
    assert values.min() > 0.6
    assert values.max() < 1.25


RICH = ("model=custom", "model._target_=tests.zoo.Rich", "checkpoint.every=13", "trainer.epochs=1")
WAYS = {
    "lamb": ("optimizer=lamb",),
    "lion": ("optimizer=lion", "optimizer.lr=0.003"),
    "muon": ("optimizer=muon", "optimizer.lr=0.01", "parameters.groups=[{match: head, method: adamw}]"),
    "muon_sgd": (
        *("optimizer=muon", "optimizer.lr=0.01", "optimizer.step_size=orthogonal", "optimizer.normalize=true"),
        "parameters.groups=[{match: head, method: sgd, momentum: 0.8}]",
    ),
    "sam": ("trainer.sam_rho=0.05", "trainer.sam_every=2"),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_run_is_resumed_to_the_bit(tmp_path, way):
    whole = train(tmp_path / "whole", small(*RICH, *WAYS[way]))
    train(tmp_path / "cut", small(*RICH, *WAYS[way], "trainer.stop_after=13"))
    resumed = train(tmp_path / "cut", small(*RICH, *WAYS[way]))
    assert resumed.folder.read_result()["weights_sha256"] == whole.folder.read_result()["weights_sha256"]


def test_sam_is_the_handwritten_one(tmp_path):
    run = train(tmp_path, small("trainer.sam_rho=0.1", "trainer.max_steps=10", "precision=fp64"))
    images, targets = synthetic(train=True)
    torch.manual_seed(1)
    model = type(run.parallel.unwrap(run.update.model))(num_classes=3, width=2).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    for step, request in zip(range(10), run.trainer.train.sampler.epoch(0), strict=False):
        chosen = torch.from_numpy(request.indices.astype("int64"))
        optimizer.param_groups[0]["lr"] = 0.05 * (1 + math.cos(math.pi * step / 10)) / 2

        def gradients(chosen=chosen):
            optimizer.zero_grad()
            cross_entropy(model(images[chosen].double()), targets[chosen]).backward()
            return [parameter.grad.clone() for parameter in model.parameters()]

        first = gradients()
        norm = torch.cat([gradient.flatten() for gradient in first]).norm()
        before = [parameter.detach().clone() for parameter in model.parameters()]
        with torch.no_grad():
            for parameter, gradient in zip(model.parameters(), first, strict=True):
                parameter += 0.1 * gradient / norm
        gradients()
        with torch.no_grad():
            for parameter, value in zip(model.parameters(), before, strict=True):
                parameter.copy_(value)
        optimizer.step()
    for name, weight in model.state_dict().items():
        torch.testing.assert_close(weights(run.trainer)[name], weight, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        (("precision=amp", "precision.dtype=float16"), "needs unscaled gradients"),
        (("precision=amp", "precision.dtype=bfloat16", "precision.level=O2"), "the model's own weights"),
    ],
)
def test_sam_is_refused_where_it_would_go_wrong(overrides, text):
    with pytest.raises(ConfigurationError, match=text):
        complete(small("trainer.sam_rho=0.05", *overrides))


def test_recomputed_blocks_give_the_same_bits(tmp_path):
    vit = ("model=custom", "model._target_=tests.parallel.models.ViT", "data.image_size=16", "trainer.max_steps=3")
    plain = weights(train(tmp_path / "plain", small(*vit)).trainer)
    for setting in ("[EncoderBlock]", "selective"):
        again = train(tmp_path / setting, small(*vit, f"trainer.recompute={setting}"))
        assert_same(weights(again.trainer), plain)
    with pytest.raises(
        ConfigurationError, match=r"trainer\.recompute: the model has no module or class named Encoder\."
    ):
        train(tmp_path / "wrong", small(*vit, "trainer.recompute=[Encoder.]"))


@pytest.mark.parametrize("strategy", ["tensor", pytest.param("fsdp", marks=from_torch("2.7"))])
def test_recomputing_is_refused_where_ranks_communicate_within_modules(strategy):
    with pytest.raises(ConfigurationError, match=r"ranks communicate within modules.*parallel.recompute instead"):
        complete(small(f"parallel={strategy}", "trainer.recompute=[auto]"))
