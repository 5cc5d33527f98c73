"""The networks of MNIST-1D's table, and a short run of its recipe with each."""

import pytest
import torch
from torch import nn

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.model.rank.mnist1d import SignalClassifier
from tests.in_process import config, train, typed

PARAMETERS = {"linear": 410, "mlp": 15_210, "cnn": 5_210, "gru": 5_134}  # as the authors' notebook prints them


@pytest.mark.parametrize(("kind", "count"), PARAMETERS.items())
def test_sizes_are_the_published_ones(kind, count):
    model = SignalClassifier(kind=kind, num_classes=10)
    assert sum(parameter.numel() for parameter in model.parameters()) == count
    assert model(torch.zeros(3, 40)).shape == (3, 10)


def test_the_second_hidden_layer_of_the_mlp_adds_to_the_first():
    first, _, second, last = SignalClassifier(kind="mlp", num_classes=10).layers
    nn.init.zeros_(second.linear.weight)
    nn.init.zeros_(second.linear.bias)
    signals = torch.randn(3, 40)
    hidden = first(signals).relu()
    assert torch.equal(second(hidden), hidden)
    assert last.in_features == 100


def test_another_kind_is_refused():
    with pytest.raises(ConfigurationError, match=r"model\.kind"):
        typed("experiment=mnist1d_table", "model.kind=transformer")


@pytest.mark.parametrize("kind", PARAMETERS)
def test_images_are_refused_as_what_it_cannot_take(kind, tmp_path):
    images = ("data=synthetic", "data.batch_size=100", "trainer.max_steps=40", "trainer.device=cpu")
    with pytest.raises(ConfigurationError, match="the model cannot take the data's inputs"):
        train(tmp_path, config("experiment=mnist1d_table", f"model.kind={kind}", *images))


@pytest.mark.parametrize("kind", PARAMETERS)
def test_the_recipe_learns_in_its_first_updates(kind, tmp_path):
    """Within 40 of its 6,000, every network is better than a guess at 1,000 signals, 10 %."""
    short = ("trainer.max_steps=40", "trainer.evaluate_every=1", "trainer.device=cpu")
    run = train(tmp_path, config("experiment=mnist1d_table", f"model.kind={kind}", *short))
    assert run.folder.read_result()["metrics"]["val_acc1"] > 18
