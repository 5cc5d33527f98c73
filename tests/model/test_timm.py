"""model=timm: names, sizes, what goes to the model's class, and weights."""

import re

import pytest
import torch

from manyheads.runner.errors import ConfigurationError
from tests.in_process import attempt, opened, rows, small, train

pytestmark = pytest.mark.needs("timm")
PLAIN = ("model=timm", "model.name=test_resnet")  # timm's own, of 500,000 parameters
VIT = ("model=timm", "model.name=test_vit", "data.image_size=32")


def test_one_is_trained_and_knows_its_classes_and_stochastic_depth(tmp_path):
    given = (*PLAIN, "data.image_size=32", "trainer.max_steps=3", "trainer.log_every=1", "model.drop_path_rate=0.1")
    run = train(tmp_path, small(*given))
    model = run.trainer.update.model
    assert model.fc.out_features == 3
    assert type(model).__module__.startswith("timm.")
    assert [float(row["loss"]) for row in rows(run.folder.steps)][0] < 5


def test_those_of_one_size_get_the_data_s(tmp_path):
    with opened(tmp_path, small(*VIT)) as trainer:
        assert trainer.update.model(trainer.train.example().inputs).shape == (8, 3)
        assert trainer.update.model.patch_embed.img_size == (32, 32)


def test_its_own_arguments_are_options(tmp_path):
    with opened(tmp_path, small(*VIT, "+model.options.global_pool=avg")) as trainer:
        assert trainer.update.model.global_pool == "avg"


def test_a_local_file_of_weights_is_loaded_but_for_the_classifier(tmp_path):
    import timm  # seconds, where it is needed

    torch.manual_seed(7)
    torch.save(timm.create_model("test_resnet").state_dict(), tmp_path / "weights.pt")
    kept = torch.load(tmp_path / "weights.pt")["conv1.0.weight"]
    with opened(tmp_path / "run", small(*PLAIN, f"model.pretrained={tmp_path}/weights.pt")) as trainer:
        assert torch.equal(dict(trainer.update.model.named_parameters())["conv1.0.weight"], kept)


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        (("model.name=resnet50d_x",), "has no such model. Did you mean resnet50d"),
        (("+model.options.no_such=1",), "unexpected keyword argument 'no_such'. Set that key to null"),
        (
            ("model.drop_path_rate=1.5",),
            "model.drop_path_rate=1.5 is not allowed. Allowed: a number of at least 0 and below 1",
        ),
        (("model.pretrained=true",), "model.pretrained=true: timm's weights for test_resnet"),
    ],
)
def test_what_is_wrong_is_told_in_a_sentence(tmp_path, monkeypatch, overrides, text):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    given = (*PLAIN, *overrides)
    with pytest.raises(ConfigurationError, match=re.escape(text)) as caught:
        attempt(
            tmp_path,
            small(*(each for each in given if overrides[0].partition("=")[0] != each.partition("=")[0]), *overrides),
        )
    assert "\n" not in str(caught.value)
