"""How the arms of a judgement are composed from base and change."""

from contextlib import nullcontext

import pytest

from manyheads.runner.answers.judge.arms import compose_arms
from manyheads.runner.answers.judge.terms import aims_of
from manyheads.runner.answers.measure.arm_configs import UNSET
from manyheads.runner.errors import ConfigurationError, UnknownName

BASE = ("model=mlp", "optimizer=sgd", "optimizer.lr=0.1", "trainer.device=cpu")


def test_a_change_of_the_optimizer_removes_a_key_that_only_base_s_has():
    with pytest.raises(
        UnknownName, match=r"write \+\+optimizer\.momentum=\.\.\. in base, and ~optimizer\.momentum in"
    ) as it:
        compose_arms([*BASE, "optimizer.momentum=0"], "optimizer=adam")
    assert (it.value.key, "optimizer=sgd" in it.value.allowed) == ("optimizer.momentum", True)
    with pytest.raises(UnknownName, match=r"Leave it out, or remove it: ~optimizer\.momentum\.$"):
        compose_arms([*BASE, "++optimizer.momentum=0"], "optimizer=adam")
    arms = compose_arms([*BASE, "++optimizer.momentum=0"], "optimizer=adam ~optimizer.momentum")
    assert (arms.base.optimizer.section["momentum"], arms.change.optimizer.name) == (0, "adam")


@pytest.mark.parametrize(
    ("on", "overrides", "change", "message"),
    [
        ("val_f1", (), "optimizer.lr=0.2", "val_f1 is not measured. Did you mean .* Allowed: val_loss, val_acc1"),
        ("val_loss,val_f1", ("metrics=[f1]",), "metrics=[]", "val_f1 is not measured"),
        ("acc1", (), "optimizer.lr=0.2", r"acc1 is not measured\. Did you mean val_acc1\?"),
        ("seconds to val_f1=9", (), "optimizer.lr=0.2", "val_f1 is not measured"),
        ("val_loss", ("trainer.evaluate_every=0",), "optimizer.lr=0.2", "val_loss is never measured with trainer.eva"),
        ("val_loss,val_f1", ("metrics=[f1]",), "optimizer.lr=0.2", None),
        ("speed", ("trainer.evaluate_every=0",), "optimizer.lr=0.2", None),
        ("train_loss", (), "optimizer.lr=0.2", None),
    ],
)
def test_a_metric_that_no_evaluation_measures_is_refused_before_training(on, overrides, change, message):
    arms = compose_arms([*BASE, *overrides], change)
    with nullcontext() if message is None else pytest.raises(ConfigurationError, match=message):
        arms.refuse_unmeasured(aims_of(on))


def test_an_argument_that_base_adds_is_changed_with_two_plus_signs():
    own = ("model=custom", "model._target_=torch.nn.Flatten", "+model.start_dim=1", "trainer.device=cpu")
    arms = compose_arms(own, "++model.start_dim=2")
    assert arms.differences() == {"model.start_dim": [1, 2]}
    assert compose_arms(own, "++model.end_dim=2").differences() == {"model.end_dim": [UNSET, 2]}


@pytest.mark.parametrize(
    "more", [["trainer.evaluate_only=true", f"checkpoint.load={__file__}"], [f"checkpoint.resume={__file__}"]]
)
def test_arms_train_from_the_start(more):
    overrides = ["model=mlp", "launcher=inline", "parallel=single", *more]
    with pytest.raises(ConfigurationError, match="a judgement trains from the start. Leave it out"):
        compose_arms(overrides, "trainer.log_every=11")
