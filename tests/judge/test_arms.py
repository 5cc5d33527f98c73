"""How the arms of a judgement are composed from base and change."""

import pytest

from manyheads.runner.errors import UnknownName
from manyheads.runner.judge.arms import UNSET, compose_arms

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


def test_an_argument_that_base_adds_is_changed_with_two_plus_signs():
    own = ("model=custom", "model._target_=torch.nn.Flatten", "+model.start_dim=1", "trainer.device=cpu")
    arms = compose_arms(own, "++model.start_dim=2")
    assert arms.differences() == {"model.start_dim": [1, 2]}
    assert compose_arms(own, "++model.end_dim=2").differences() == {"model.end_dim": [UNSET, 2]}
