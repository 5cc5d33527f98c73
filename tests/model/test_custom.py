"""model=custom, the loss, and local files of weights, through the section of the run config."""

import pytest
import torch
from torch import nn

from manyheads.runner.data.data_option import Data
from manyheads.runner.data.synthetic import Synthetic
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.model.rank.build_model import build_model
from manyheads.runner.model.rank.small_cnn import SmallCNN
from tests.in_process import small, train, typed

DATA = Synthetic(image_size=8, num_classes=3, train_samples=8, val_samples=8)
PACKAGE = '''
from torch import nn

class Net(nn.Module):
    def __init__(self, num_classes, width):
        super().__init__()
        self.out = nn.Linear(192, num_classes)
        self.width = width
    def forward(self, images):
        return self.out(images.flatten(1))

class Fixed(nn.Module):
    """Knows its number of classes itself."""
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(192, 3)
    def forward(self, images):
        return self.out(images.flatten(1))

def no_model(num_classes):
    return num_classes
'''


@pytest.fixture
def package(tmp_path, monkeypatch) -> str:
    """The name of a user's package."""
    name = f"nets_{tmp_path.name}"
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("")
    (tmp_path / name / "nets.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(tmp_path)
    return f"{name}.nets"


def build(*overrides: str) -> nn.Module:
    return build_model(typed("data=synthetic", *overrides).model, DATA).model


def test_a_class_of_one_s_own_gets_its_keys_and_the_data_s_classes(package):
    model = build("model=custom", f"model._target_={package}.Net", "+model.width=5")
    assert (model.out.out_features, model.width) == (3, 5)


def test_num_classes_may_be_given(package):
    model = build("model=custom", f"model._target_={package}.Net", "+model.width=5", "model.num_classes=9")
    assert model.out.out_features == 9
    assert build("model.num_classes=4").classifier.out_features == 4


def test_num_classes_is_passed_only_to_a_class_that_takes_it(package, tmp_path):
    assert build("model=custom", f"model._target_={package}.Fixed").out.out_features == 3
    with pytest.raises(ConfigurationError, match=r"Fixed rejects its arguments: .*num_classes"):
        build("model=custom", f"model._target_={package}.Fixed", "model.num_classes=4")
    run = train(tmp_path / "run", small("model=custom", f"model._target_={package}.Fixed", "trainer.max_steps=2"))
    assert run.folder.read_result()["status"] == "completed"


def test_classes_of_torch_itself_can_be_named():
    model = build("model=custom", "model._target_=torch.nn.LazyLinear", "+model.out_features=3")
    assert isinstance(model, nn.LazyLinear)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["model._target_=no_such_package.Net"], r"no_such_package\.Net can't be imported.*Install the package"),
        (["model._target_={package}.Nett"], r"nets has no Nett\. Did you mean Net\? Check the name"),
        (["model._target_=torch.nnn.Linear"], r"No module named 'torch\.nnn'\. Did you mean torch\.nn\b"),
        (
            ["model._target_=torch.nn.LazyLinear", "+model.out_features=3", "+model.biass=true"],
            r"'biass'\. Did you mean bias\? Set them under model",
        ),
        (
            ["model._target_=torch.nn.LazyLinear", "+model.out_features=3", "+model.out_feature=4"],
            r"'out_feature'\. Did you mean out_features, which is set already\? Set them under model",
        ),
        (["model._target_={package}.Net"], r"Net rejects its arguments: .*'width'.*under model"),
        (
            ["model._target_={package}.Fixed", "+model.depth=3"],
            r"Fixed rejects its arguments: .*'depth'. It takes none",
        ),
        (["model._target_={package}.no_model"], r"no_model is not a torch\.nn\.Module"),
        (["model._target_={package}.Fixed", "model.pretrained=DEFAULT"], r"pretrained=DEFAULT: there is no such file"),
    ],
)
def test_what_does_not_fit_is_said(package, overrides, message):
    with pytest.raises(ConfigurationError, match=message):
        build("model=custom", *(override.format(package=package) for override in overrides))


@pytest.fixture
def given():
    torch.manual_seed(7)
    return SmallCNN(num_classes=3, width=32).state_dict()


@pytest.mark.parametrize("wrapped", [None, "model", "state_dict"])
def test_pretrained_takes_a_local_file(tmp_path, given, wrapped):
    path = tmp_path / "weights.pt"
    torch.save(given if wrapped is None else {wrapped: given, "epoch": 3}, path)
    loaded = build(f"model.pretrained={path}").state_dict()
    assert all(torch.equal(loaded[name], given[name]) for name in given)


def test_a_classifier_for_other_classes_stays_new(tmp_path, given):
    path = tmp_path / "weights.pt"
    torch.save(given, path)
    torch.manual_seed(2)
    fresh = SmallCNN(num_classes=4, width=32).classifier.weight
    torch.manual_seed(2)
    model = build(f"model.pretrained={path}", "model.num_classes=4")
    assert torch.equal(model.classifier.weight, fresh)
    assert torch.equal(model.features[0].weight, given["features.0.weight"])


def test_pretrained_refuses_another_model_s_file_damage_and_absence(tmp_path, given):
    path = tmp_path / "weights.pt"
    torch.save(given, path)
    with pytest.raises(ConfigurationError, match=rf"{path} holds the weights of another model"):
        build(f"model.pretrained={path}", "model.width=8")
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(ConfigurationError, match=rf"{path} is damaged"):
        build(f"model.pretrained={path}")
    path.unlink()
    with pytest.raises(ConfigurationError, match=rf"model\.pretrained={path}: there is no such file"):
        build(f"model.pretrained={path}")
    with pytest.raises(ConfigurationError, match=r"neither a local file nor a set of weights for resnet18"):
        build("model=resnet18", "data.image_size=32", f"model.pretrained={path}")


def test_a_run_s_checkpoint_is_a_file_of_weights_too(tmp_path):
    run = train(tmp_path, small("trainer.max_steps=1", "model.width=32"))
    loaded = build(f"model.pretrained={run.folder.last_checkpoint}", "model.num_classes=3").state_dict()
    trained = run.trainer.update.model.state_dict()
    assert all(torch.equal(loaded[name], trained[name]) for name in trained)


def test_a_model_that_wants_the_number_of_classes_says_so_where_the_data_has_none():
    with pytest.raises(ConfigurationError, match=r"data\.num_classes is not set, and the data set has no num_classes"):
        build_model(typed().model, without_classes("data=custom", "data._target_=fractions.Fraction"))
    with pytest.raises(
        ConfigurationError, match=r"data=digits has no classes, and the model needs its number of outputs"
    ):
        build_model(typed().model, without_classes())


def without_classes(*overrides: str) -> Data:
    data = Data()
    data.without_classes = typed(*overrides).data.without_classes
    return data
