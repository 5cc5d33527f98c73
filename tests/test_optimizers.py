"""The optimizer and its learning rate."""

import pytest
import torch
from torch import nn

from runner.errors import ConfigurationError
from runner.instantiate import locate
from runner.optimizers import build_optimizer, scaled_lr
from tests.in_process import config

PLAIN = ("data=synthetic",)  # the digits bring a learning rate of their own


def build(model: nn.Module, *overrides: str, batch_size: int = 64):
    section = config(*overrides)["optimizer"]
    return build_optimizer(locate("optimizer", section["_target_"]), section, model, batch_size=batch_size)


@pytest.mark.parametrize(
    ("policy", "batch", "expected"),
    [("none", 1024, 0.1), ("linear", 1024, 0.4), ("linear", 64, 0.025), ("sqrt", 1024, 0.2), ("sqrt", 64, 0.05)],
)
def test_the_learning_rate_follows_the_batch_as_chosen(policy, batch, expected):
    section = config("optimizer.lr=0.1", f"optimizer.lr_scaling={policy}")["optimizer"]
    assert scaled_lr(section, batch) == pytest.approx(expected)
    optimizer = build(nn.Linear(1, 1), "optimizer.lr=0.1", f"optimizer.lr_scaling={policy}", batch_size=batch)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(expected)


def test_sgd_and_adamw_have_the_promised_defaults():
    sgd = build(nn.Linear(1, 1), *PLAIN, "optimizer=sgd")
    assert type(sgd) is torch.optim.SGD
    assert {k: sgd.defaults[k] for k in ("lr", "momentum", "weight_decay", "nesterov")} == {
        "lr": 0.1,
        "momentum": 0.9,
        "weight_decay": 1e-4,
        "nesterov": False,
    }
    adamw = build(nn.Linear(1, 1), *PLAIN, "optimizer=adamw")
    assert type(adamw) is torch.optim.AdamW
    assert (adamw.defaults["lr"], adamw.defaults["betas"], adamw.defaults["weight_decay"]) == (1e-3, (0.9, 0.999), 0.01)


def test_any_class_of_torch_can_be_named():
    optimizer = build(
        nn.Linear(1, 1), "optimizer=custom", "optimizer._target_=torch.optim.RMSprop", "+optimizer.alpha=0.5"
    )
    assert isinstance(optimizer, torch.optim.RMSprop)
    assert optimizer.defaults["alpha"] == 0.5


def test_only_parameters_to_be_trained_are_its():
    model = nn.Sequential(nn.Linear(1, 2), nn.Linear(2, 1))
    model[0].requires_grad_(False)
    assert [id(p) for p in build(model).param_groups[0]["params"]] == [id(p) for p in model[1].parameters()]


@pytest.mark.parametrize(
    "overrides",
    [
        ["optimizer=custom", "optimizer._target_=torch.optim.RMSprop", "+optimizer.alphaa=0.5"],
        ["optimizer.nesterov=true", "optimizer.momentum=0"],
    ],
)
def test_arguments_that_it_refuses_are_the_user_s_mistake(overrides):
    with pytest.raises(ConfigurationError, match=r"optimizer\._target_=torch\.optim\.\w+ refuses its arguments"):
        build(nn.Linear(1, 1), *overrides)


def test_a_model_without_anything_to_train_is_refused():
    with pytest.raises(ConfigurationError, match="optimizer got an empty parameter list"):
        build(nn.ReLU())
