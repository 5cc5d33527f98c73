"""Which parameter has which settings, from the patterns and keys of the config's ``parameters``."""

import math
import re

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.optimizer.rank.build_optimizer import build_optimizer
from manyheads.runner.optimizer.rank.parameter_groups import find_groups
from tests.in_process import config, small, train, typed, weights
from tests.loop.test_trainer import assert_same, synthetic
from tests.parallel.models import ViT
from tests.zoo import Rich

PLAIN = ("data=synthetic", "optimizer=adamw", "optimizer.lr=0.01", "optimizer.weight_decay=0.1")
RICH = ("model=custom", "model._target_=tests.zoo.Rich")


def settings(model: nn.Module, *overrides: str) -> dict[str, tuple[float, float]]:
    """By name the learning rate and the weight decay of each parameter that the optimizer has."""
    run = typed(*PLAIN, *overrides)
    groups = find_groups(model, run.parameters, lr=run.optimizer.lr)
    optimizer = build_optimizer(run.optimizer, model, batch_size=64, groups=groups)
    names = {parameter: name for name, parameter in model.named_parameters()}
    return {names[p]: (group["lr"], group["weight_decay"]) for group in optimizer.param_groups for p in group["params"]}


def test_without_any_there_is_one_group_in_the_model_s_order():
    found = find_groups(Rich(num_classes=3), typed(*PLAIN).parameters, lr=0.01)
    assert [(group.settings, group.names) for group in found] == [
        ({}, [name for name, _ in Rich(num_classes=3).named_parameters()])
    ]


def test_norms_and_biases_have_a_weight_decay_of_their_own():
    found = settings(Rich(num_classes=3), "parameters.norm_weight_decay=0", "parameters.bias_weight_decay=0.02")
    assert {name: decay for name, (_, decay) in found.items()} == {
        "body.0.weight": 0.1,
        "body.0.bias": 0.02,
        "body.1.weight": 0,
        "body.1.bias": 0,
        "head.weight": 0.1,
        "head.bias": 0.02,
    }


def test_layer_decay_falls_from_the_head_to_the_stem():
    found = settings(ViT(num_classes=3), "parameters.layer_decay=0.5")
    prefixes = {name.split(".mlp.")[0].split(".self_attention.")[0]: lr for name, (lr, _) in found.items()}
    assert prefixes["heads.head.weight"] == prefixes["encoder.ln.weight"] == 0.01
    layers = [prefixes[f"encoder.layers.encoder_layer_{number}"] for number in (2, 1, 0)]
    assert layers == pytest.approx([0.005, 0.0025, 0.00125])
    assert prefixes["class_token"] == prefixes["conv_proj.weight"] == pytest.approx(0.000625)


def test_of_entries_that_name_a_parameter_the_first_counts_and_goes_before_the_rest():
    entries = "[{match: head, lr: 0.1},{match: ['*.bias',body.0],lr_factor: 3,weight_decay: 0.5}]"
    found = settings(Rich(num_classes=3), f"parameters.groups={entries}", "parameters.bias_weight_decay=0")
    assert found["head.weight"] == pytest.approx((0.1, 0.1))
    assert found["head.bias"] == pytest.approx((0.1, 0.0))
    assert found["body.1.bias"] == found["body.0.weight"] == pytest.approx((0.03, 0.5))
    assert found["body.1.weight"] == (0.01, 0.1)


@pytest.mark.parametrize(
    ("override", "text"),
    [
        ("parameters.groups=[{match: haed, lr: 1}]", "no parameter of the model is named haed. Did you mean head"),
        ("parameters.groups=[{match: head, momentun: 1}]", "AdamW has no setting momentun. Allowed in groups: match,"),
        ("parameters.layer_decay=0.5", "Rich has no repeated blocks"),
    ],
)  # fmt: skip
def test_what_names_nothing_is_refused(override, text):
    with pytest.raises(ConfigurationError, match=re.escape(text)):
        settings(Rich(num_classes=3), override)


@pytest.mark.parametrize(
    "override",
    [
        "parameters.groups=[{match: head}]",
        "parameters.groups=[{lr: 1}]",
        "parameters.groups=[{match: head, lr: 1, lr_factor: 2}]",
        "parameters.layer_decay=1.5",
        "parameters.freeze=head",
    ],
)
def test_values_that_mean_nothing_are_refused(override):
    with pytest.raises(ConfigurationError, match="is not allowed. Allowed: "):
        config(*PLAIN, override)


def test_the_loop_with_groups_is_the_handwritten_one_bit_for_bit(tmp_path):
    overrides = ("optimizer.weight_decay=0.01", "parameters.bias_weight_decay=0", "trainer.max_steps=12")
    run = train(tmp_path, small(*overrides, "parameters.groups=[{match: classifier, lr: 0.2}]"))
    images, targets = synthetic(train=True)
    torch.manual_seed(1)
    model = type(run.parallel.unwrap(run.update.model))(num_classes=3, width=2)
    own = dict(model.named_parameters())

    def group(lr, decay, names):
        return {"params": [own[name] for name in names], "lr": lr, "weight_decay": decay, "base": lr}

    others = [name for name in own if "classifier" not in name]
    optimizer = torch.optim.SGD(
        [
            group(0.05, 0.01, [name for name in others if "bias" not in name]),
            group(0.05, 0, [name for name in others if "bias" in name]),
            group(0.2, 0.01, ["classifier.weight"]),
            group(0.2, 0, ["classifier.bias"]),
        ],
        momentum=0.9,
        fused=True,
    )
    order = run.trainer.train.sampler.epoch(0)
    for step in range(12):
        chosen = torch.from_numpy(next(order).indices.astype("int64"))
        for each in optimizer.param_groups:
            each["lr"] = each["base"] * (1 + math.cos(math.pi * step / 12)) / 2
        cross_entropy(model(images[chosen]), targets[chosen]).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert_same(weights(run.trainer), model.state_dict())


def test_other_groups_than_those_of_the_checkpoint_are_refused(tmp_path):
    train(tmp_path / "first", small(*RICH, "trainer.max_steps=2"))
    with pytest.raises(
        ConfigurationError, match=r"has 6 trainable parameters in its groups, where this run has 2 \+ 4"
    ):
        train(
            tmp_path / "second",
            small(
                *RICH,
                "parameters.norm_weight_decay=0",
                "parameters.bias_weight_decay=0",
                f"checkpoint.resume={tmp_path}/first/checkpoints/last.pt",
            ),
        )
