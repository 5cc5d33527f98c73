"""The optimizer and its learning rate."""

import pytest
import torch
from torch import nn

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.optimizer.rank.build_optimizer import build_optimizer
from manyheads.runner.precision.rank import amp
from tests.in_process import rows, small, train, typed
from tests.tail import each_once

PLAIN = ("data=synthetic",)  # the digits bring a learning rate of their own
UNFUSED = "optimizer.fused=false"


def build(model: nn.Module, *overrides: str, batch_size: int = 64):
    return build_optimizer(typed(*overrides).optimizer, model, batch_size=batch_size)


@pytest.mark.parametrize(
    ("policy", "batch", "expected"),
    [("none", 1024, 0.1), ("linear", 1024, 0.4), ("linear", 64, 0.025), ("sqrt", 1024, 0.2), ("sqrt", 64, 0.05)],
)
def test_the_learning_rate_follows_the_batch_as_chosen(policy, batch, expected):
    option = typed("optimizer.lr=0.1", f"optimizer.lr_scaling={policy}").optimizer
    assert option.scaled_lr(batch) == pytest.approx(expected)
    optimizer = build(nn.Linear(1, 1), "optimizer.lr=0.1", f"optimizer.lr_scaling={policy}", batch_size=batch)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(expected)


def test_the_named_ones_have_the_promised_defaults():
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
    adam = build(nn.Linear(1, 1), *PLAIN, "optimizer=adam")
    assert (type(adam), adam.defaults["lr"], adam.defaults["weight_decay"]) == (torch.optim.Adam, 1e-3, 0)


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


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw"])
def test_fused_or_as_torch_chooses(name):
    assert build(nn.Linear(1, 1), f"optimizer={name}").defaults["fused"] is True
    plain = build(nn.Linear(1, 1), f"optimizer={name}", UNFUSED).defaults
    assert (plain["fused"], plain["foreach"]) == (None, None)  # given one, torch would not choose the other


@pytest.mark.parametrize(("precision", "name"), each_once(["fp32", "fp64", "amp"], ["sgd", "adam", "adamw"]))
def test_fused_computes_the_same(tmp_path, name, precision):
    shared = (f"optimizer={name}", "optimizer.lr=0.005", f"precision={precision}")
    runs = [train(tmp_path / str(len(more)), small(*shared, *more)) for more in ((UNFUSED,), ())]
    losses = [[float(row["loss"]) for row in rows(run.folder.steps)] for run in runs]
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)
    assert losses[0][-1] != losses[0][0]


@pytest.mark.parametrize(("name", "clip"), each_once(["sgd", "adam", "adamw"], ["0.5", "inf"]))
def test_fused_leaves_overflows_out(tmp_path, name, clip):
    """The first updates too, before there is a momentum."""
    fp16 = ("precision=amp", "precision.dtype=float16", f"precision.init_scale={2.0**30}", f"trainer.clip_norm={clip}")
    shared = (f"optimizer={name}", "optimizer.lr=0.005", *fp16)
    runs = [train(tmp_path / str(len(more)), small(*shared, *more)) for more in ((UNFUSED,), ())]
    scales = [run.trainer.update.precision.state_dict()["scale"] for run in runs]
    assert scales[0] == scales[1] < 2.0**30
    losses = [[float(row["loss"]) for row in rows(run.folder.steps)] for run in runs]
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)


@pytest.mark.parametrize(("target", "more"), [("RMSprop", []), ("Adagrad", ["+optimizer.foreach=true"])])
def test_what_cannot_be_fused_says_so(target, more):
    overrides = ["optimizer=custom", f"optimizer._target_=torch.optim.{target}", "+optimizer.fused=true", *more]
    with pytest.raises(ConfigurationError, match=rf"^optimizer\.fused=true: torch\.optim\.{target} .* Set it to false"):
        build(nn.Linear(1, 1), *overrides)


@pytest.mark.parametrize(
    "overrides",
    [
        ["optimizer=custom", "optimizer._target_=torch.optim.RMSprop", "+optimizer.alphaa=0.5"],
        ["optimizer.nesterov=true", "optimizer.momentum=0"],
    ],
)
def test_arguments_that_it_refuses_are_the_user_s_mistake(overrides):
    with pytest.raises(ConfigurationError, match=r"optimizer\._target_=torch\.optim\.\w+ rejects its arguments"):
        build(nn.Linear(1, 1), *overrides)


def test_a_model_without_anything_to_train_is_refused():
    with pytest.raises(ConfigurationError, match="optimizer got an empty parameter list"):
        build(nn.ReLU())


@pytest.mark.parametrize("momentum", ["optimizer.momentum=0.9", "optimizer.momentum=0"])
def test_fused_sgd_with_a_gradient_scaler_has_the_bits_of_one_that_waits(tmp_path, monkeypatch, momentum):
    """Its momentum begins as zeros, so that an overflow in the first update leaves nothing that was never written."""
    options = small("precision=amp", "precision.dtype=float16", "precision.init_scale=1e30", momentum)
    found = train(tmp_path / "own", options)
    assert getattr(found.update.optimizer, "_step_supports_amp_scaling", False)
    monkeypatch.setattr(
        amp, "begin_momentum", lambda optimizer: setattr(optimizer, "_step_supports_amp_scaling", False)
    )
    waited = train(tmp_path / "waits", options)
    assert found.folder.read_result()["weights_sha256"] == waited.folder.read_result()["weights_sha256"]
    assert float(rows(found.folder.steps)[-1]["loss"]) < 1.2  # of three classes
