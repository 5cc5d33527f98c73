"""Parts of a model that are not trained."""

import re

import pytest
import torch

from manyheads.runner.errors import ConfigurationError
from tests.in_process import attempt, opened, small, train, weights

RICH = ("model=custom", "model._target_=tests.zoo.Rich", "trainer.max_steps=4")


@pytest.mark.parametrize("keeps_statistics", [True, False])
def test_frozen_parts_stay_as_they_are(tmp_path, keeps_statistics):
    with opened(tmp_path / "fresh", small(*RICH)) as fresh:
        before = weights(fresh)
    frozen = ("parameters.freeze=[body]", f"parameters.freeze_batchnorm={str(keeps_statistics).lower()}")
    run = train(tmp_path / "run", small(*RICH, *frozen))
    after = weights(run.trainer)
    changed = {name for name, weight in after.items() if not torch.equal(weight, before[name])}
    statistics = {f"body.1.{name}" for name in ("running_mean", "running_var", "num_batches_tracked")}
    assert changed == {"head.weight", "head.bias"} | (set() if keeps_statistics else statistics)
    assert run.update.names == ["head.weight", "head.bias"]


@pytest.mark.parametrize("patterns", ["", "body", "'body.*.weight'", "head.bias"])
def test_what_a_model_froze_itself_normalizes_as_it_did(tmp_path, patterns):
    """A loop of the user's own would call train(): evaluation mode there changes the loss."""
    run = train(tmp_path, small(RICH[0], "model._target_=tests.zoo.Halted", RICH[2], f"parameters.freeze=[{patterns}]"))
    assert (weights(run.trainer)["body.1.num_batches_tracked"] == 0) == ("body" in patterns)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("bdoy", "parameters.freeze: no parameter of the model is named bdoy. Did you mean body"),
        ("body.7.*", "parameters.freeze: no parameter of the model is named body.7.*."),
        ("*", "all of its parameters are frozen"),
    ],
)
def test_patterns_that_name_nothing_or_all_are_refused(tmp_path, pattern, text):
    with pytest.raises(ConfigurationError, match=re.escape(text)):
        attempt(tmp_path, small(*RICH, f"parameters.freeze=['{pattern}']"))


def test_a_fine_tuned_run_is_resumed_to_the_bit(tmp_path):
    frozen = (*RICH[:2], "parameters.freeze=[body.0]", "parameters.bias_weight_decay=0", "checkpoint.every=13")
    whole = train(tmp_path / "whole", small(*frozen))
    train(tmp_path / "cut", small(*frozen, "trainer.stop_after=13"))
    resumed = train(tmp_path / "cut", small(*frozen))
    assert resumed.folder.read_result()["weights_sha256"] == whole.folder.read_result()["weights_sha256"]
