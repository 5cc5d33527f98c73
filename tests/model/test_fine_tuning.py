"""Weights to begin with: by the model's own names, and from a checkpoint of another model as far as they fit."""

import pytest
import torch
from torch import nn
from torchvision import models

from manyheads.runner.data.synthetic import Synthetic
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.loop.header_rows import weights
from manyheads.runner.model.rank.build_model import Built, bare_model, build_model
from manyheads.runner.option.run_config import RunConfig
from tests.in_process import small, train, typed
from tests.model.test_torchvision import OnMeta, no_network  # noqa: F401

DATA = Synthetic(image_size=32, num_classes=3, train_samples=8, val_samples=8)
ENTRY = models.MobileNet_V3_Small_Weights.IMAGENET1K_V1


class Zoo(nn.Linear):
    """As a model of timm: it fetches its own weights when it is told to."""

    def __init__(self, pretrained=False, num_classes=10, **kwargs):
        super().__init__(2, num_classes)
        self.given = (pretrained, kwargs)


@pytest.fixture
def given(tmp_path, monkeypatch):
    """What torchvision has downloaded before."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    path = tmp_path / "home" / "hub" / "checkpoints" / ENTRY.url.rpartition("/")[2]
    path.parent.mkdir(parents=True)
    torch.manual_seed(1)
    torch.save(state := models.mobilenet_v3_small().state_dict(), path)
    return state


def of(*overrides: str) -> RunConfig:
    return typed("data=synthetic", *overrides)


def made(run: RunConfig) -> Built:
    return build_model(run.model, DATA, load_from=run.checkpoint.load, strict=run.checkpoint.strict)


@pytest.mark.parametrize("value", ["true", "DEFAULT", "IMAGENET1K_V1"])
def test_torchvision_s_recommended_weights_are_named(given, value):
    section = of("model=mobilenet_v3_small", f"model.pretrained={value}")
    built = made(section)
    assert torch.equal(built.model.features[0][0].weight, given["features.0.0.weight"])
    assert built.model.classifier[3].out_features == 3
    assert built.pretrained == "MobileNet_V3_Small_Weights.IMAGENET1K_V1"
    assert weights(built, section.checkpoint.load) == {"weights": "MobileNet_V3_Small_Weights.IMAGENET1K_V1"}


def test_false_is_none_of_them():
    section = of("model.pretrained=false")
    assert weights(made(section), None) == {}


def test_a_class_that_takes_pretrained_is_given_it():
    custom = ("model=custom", "model._target_=tests.model.test_fine_tuning.Zoo", "+model.drop=0.5")
    assert made(of(*custom, "model.pretrained=true")).model.given == (True, {"drop": 0.5})
    assert made(of(*custom, "model.pretrained=in1k")).model.given == ("in1k", {"drop": 0.5})
    assert made(of(*custom)).model.given == (False, {"drop": 0.5})
    assert bare_model(of(*custom, "model.pretrained=true").model, DATA).given == (False, {"drop": 0.5})


@pytest.mark.parametrize("value", ["true", "no_such_file.pt"])
def test_a_class_without_weights_of_its_own(value):
    with pytest.raises(ConfigurationError, match="does not accept the names of weights. Set it to a .pt file, or null"):
        made(of(f"model.pretrained={value}"))


@pytest.mark.usefixtures("no_network")
@pytest.mark.timeout(20)
def test_weights_that_come_from_a_checkpoint_are_not_fetched_before():
    """But the model is the one for them: this one normalizes its images in another way."""
    for value, expected in (("true", True), ("null", False), ("gone.pt", False)):
        with OnMeta(torch.device("meta")):
            model = bare_model(of("model=torchvision", "model.name=googlenet", f"model.pretrained={value}").model, DATA)
        assert model.transform_input == expected


@pytest.fixture
def narrow(tmp_path):
    """A checkpoint of a model with other classes."""
    return train(tmp_path / "narrow", small("trainer.max_steps=1", "data.num_classes=4")).folder.last_checkpoint


def test_all_of_a_checkpoint_must_fit_unless_one_says_otherwise(narrow):
    with pytest.raises(ConfigurationError) as caught:
        made(RunConfig.of(small(f"checkpoint.load={narrow}")))
    assert "2 of its names or shapes don't fit (with another shape: classifier.weight, classifier.bias)" in (
        message := str(caught.value)
    )
    assert "checkpoint.strict=false" in message


def test_what_fits_is_loaded_and_what_does_not_is_named(narrow, tmp_path, capfd):
    config = small(f"checkpoint.load={narrow}", "checkpoint.strict=false", "trainer.max_steps=1")
    built, saved = made(RunConfig.of(config)), torch.load(narrow)["model"]
    assert torch.equal(built.model.features[0].weight, saved["features.0.weight"])
    assert built.model.classifier.out_features == 3
    assert built.unfit == ([], [], ["classifier.weight", "classifier.bias"])
    train(tmp_path / "run", config)
    out = " ".join(capfd.readouterr().out.split())
    assert "not all of which fit: with another shape: classifier.weight, classifier.bias" in out


def test_missing_and_left_over_names(tmp_path):
    state = made(RunConfig.of(small())).model.state_dict()
    state["head.weight"] = state.pop("classifier.weight")
    torch.save(state, tmp_path / "a.pt")
    section = RunConfig.of(small(f"checkpoint.load={tmp_path / 'a.pt'}", "checkpoint.strict=false"))
    built = made(section)
    assert built.unfit == (["classifier.weight"], ["head.weight"], [])
    shown = weights(built, section.checkpoint.load)["weights"]
    assert "missing from it: classifier.weight; not in the model: head.weight" in shown
    torch.save({"other": torch.zeros(1)}, tmp_path / "a.pt")
    with pytest.raises(ConfigurationError, match="none of its weights fit"):
        made(section)


def test_all_of_it_fits():
    assert weights(Built(nn.Identity()), None) == {}
