"""Parts of a model that rest in some epochs: as frozen then, and trained as ever in the others."""

import re

import pytest
import torch

from manyheads.runner.errors import ConfigurationError
from tests.in_process import attempt, small, train, weights

RICH = ("model=custom", "model._target_=tests.zoo.Rich", "trainer.epochs=3", "checkpoint.every=10")
UNTIL = "parameters.freeze_epochs=[{match: body, until: 2}]"
FROM = "parameters.freeze_epochs=[{match: [body.0, body.1], from: 2}]"


def changed(one: dict, other: dict) -> set[str]:
    return {name for name in one if not torch.equal(one[name], other[name])}


@pytest.mark.parametrize("optimizer", ["sgd", "adamw", "muon", "lamb"])
def test_an_epoch_at_rest_is_one_of_a_frozen_part(tmp_path, optimizer):
    given = (*RICH, f"optimizer={optimizer}", "trainer.stop_after=20", "trainer.clip_norm=0.1")
    frozen = train(tmp_path / "frozen", small(*given, "parameters.freeze=[body]"))
    rests = train(tmp_path / "rests", small(*given, UNTIL))
    assert not changed(weights(frozen.trainer), weights(rests.trainer))


def test_it_is_trained_once_its_time_has_come_with_weight_decay_and_statistics(tmp_path):
    given = (*RICH, "optimizer.weight_decay=0.5")
    at_20, at_40 = (
        weights(train(tmp_path / str(step), small(*given, UNTIL, f"trainer.stop_after={step}")).trainer)
        for step in (20, 40)
    )
    assert changed(at_20, at_40) >= {"body.0.weight", "body.1.weight", "body.1.running_mean", "head.weight"}


@pytest.mark.parametrize("keeps", [True, False])
def test_it_stays_as_it_is_from_an_epoch_on(tmp_path, keeps):
    given = (*RICH, FROM, f"parameters.freeze_batchnorm={str(keeps).lower()}", "trainer.sam_rho=0.05")
    at_20, at_40 = (
        weights(train(tmp_path / str(step), small(*given, f"trainer.stop_after={step}")).trainer) for step in (20, 40)
    )
    statistics = {f"body.1.{name}" for name in ("running_mean", "running_var", "num_batches_tracked")}
    assert changed(at_20, at_40) == {"head.weight", "head.bias"} | (set() if keeps else statistics)


@pytest.mark.parametrize("step", [10, 30])
def test_it_is_resumed_to_the_bit(tmp_path, step):
    given = (*RICH, UNTIL, "optimizer=adamw", "trainer.ema_decay=0.9")
    whole = train(tmp_path / "whole", small(*given))
    train(tmp_path / "cut", small(*given, f"trainer.stop_after={step}"))
    resumed = train(tmp_path / "cut", small(*given))
    assert resumed.folder.read_result()["weights_sha256"] == whole.folder.read_result()["weights_sha256"]


@pytest.mark.parametrize(
    ("entries", "text"),
    [
        ("[{match: bdoy, until: 2}]", "parameters.freeze_epochs.0.match: no parameter of the model is named bdoy."),
        ("[{match: '*', until: 2}]", "parameters.freeze_epochs: nothing is trained in epoch 1. Exclude some part"),
        ("[{match: body, from: 2}, {match: head, until: 3}]", "nothing is trained in epoch 2."),
        ("[{match: body}]", "is not allowed. Allowed: a list, each match: one or more patterns, together with until"),
        ("[{match: body, until: 0}]", "is not allowed. Allowed: a list, each match:"),
    ],
)
def test_entries_that_mean_nothing_are_refused(tmp_path, entries, text):
    with pytest.raises(ConfigurationError, match=re.escape(text)):
        attempt(tmp_path, small(*RICH, f"parameters.freeze_epochs={entries}"))
