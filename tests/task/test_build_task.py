"""The loss and the task from the config's sections."""

import pytest
from torch import nn

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.task.rank.build_task import build_loss
from tests.in_process import typed


def loss_of(run: RunConfig) -> nn.Module:
    return build_loss(run.loss, run.trainer.label_smoothing)


def test_the_loss_is_a_key():
    assert isinstance(loss_of(typed()), nn.CrossEntropyLoss)
    loss = loss_of(typed("loss._target_=torch.nn.MultiMarginLoss", "+loss.margin=0.5"))
    assert isinstance(loss, nn.MultiMarginLoss)
    assert loss.margin == 0.5
    assert loss_of(typed("trainer.label_smoothing=0.1")).label_smoothing == 0.1


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["loss._target_=torch.nn.NoSuchLoss"], r"torch\.nn has no NoSuchLoss"),
        (["+loss.margin=3"], r"loss\._target_=torch\.nn\.CrossEntropyLoss rejects its arguments: .*margin"),
        (["loss._target_=torch.nn.NLLLoss", "trainer.label_smoothing=0.1"], r"trainer\.label_smoothing=0\.1.*Set it"),
        (["loss._target_=fractions.Fraction"], r"is not a torch\.nn\.Module"),
    ],
)
def test_a_loss_that_does_not_fit_is_said(overrides, message):
    with pytest.raises(ConfigurationError, match=message):
        loss_of(typed(*overrides))
