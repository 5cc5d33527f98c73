"""Every classification model of torchvision, without the seconds and gigabytes of its real weights."""

import pytest
import torch
from torch import nn
from torch.utils._device import DeviceContext
from torchvision import models

from manyheads.runner.checkpoint.rank.fit import load_weights
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.model.rank.torchvision import AUXILIARY, SIZED, SMALLEST, names, torchvision_model
from tests.tail import tailed
from tests.torch_versions import from_torch

pytestmark = pytest.mark.ci

TOO_SMALL_32 = {"alexnet": 63, "inception_v3": 75, "maxvit_t": 224, "vit_h_14": 28}
SLIM = ("mobilenet_v3_small", "squeezenet1_1", "shufflenet_v2_x0_5", "mnasnet0_5")


class OnMeta(DeviceContext):
    """Tensors without data; torchvision computes the widths of its RegNets from real ones."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func in (torch.arange, torch.tensor):
            return func(*args, **(kwargs or {}))
        return super().__torch_function__(func, types, args, kwargs)


def build(name: str, *, image_size: int, num_classes: int = 7) -> nn.Module:
    with OnMeta(torch.device("meta")):
        model = torchvision_model(name=name, num_classes=num_classes, image_size=image_size)
    return model.to("meta")


def logits(model: nn.Module, image_size: int) -> torch.Tensor:
    return model.train()(torch.zeros(2, 3, image_size, image_size, device="meta"))


def family(name: str) -> str:
    return models.get_model_builder(name).__module__


FAMILIES = list({family(name): name for name in reversed(names())}.values())


def smallest(name: str) -> int:
    for prefix, size in {
        "vit_h_14": 14,
        "vit_b_32": 32,
        "vit_l_32": 32,
        "vit_": 16,
        "maxvit_": 224,
        **SMALLEST,
    }.items():
        if name.startswith(prefix):
            return size
    return max(models.get_model_weights(name).DEFAULT.meta.get("min_size", (1, 1)))


def test_names_are_all_classification_models_and_nothing_else():
    assert len(names()) >= 80
    assert {"resnet50", "vit_b_16", "convnext_tiny", "maxvit_t"} <= set(names())
    assert not [name for name in names() if "quantized" in name or "rcnn" in name or "deeplab" in name]


@pytest.mark.slow
@pytest.mark.parametrize("name", tailed(names(), always=FAMILIES))
def test_every_model_trains_on_its_smallest_images(name):
    size = smallest(name)
    assert logits(build(name, image_size=size), size).shape == (2, 7)


DIGITS = [name for name in FAMILIES if name not in TOO_SMALL_32]


@pytest.mark.parametrize("name", tailed(DIGITS, always=[name for name in DIGITS if smallest(name) > 16]))
def test_a_model_of_every_family_takes_the_digits_32_pixels(name):
    assert logits(build(name, image_size=32), 32).shape == (2, 7)


@pytest.mark.parametrize("name", TOO_SMALL_32)
def test_the_others_say_that_data_image_size_is_too_small(name):
    with pytest.raises(ConfigurationError, match=r"data\.image_size"):
        build(name, image_size=32)
    assert logits(build(name, image_size=TOO_SMALL_32[name]), TOO_SMALL_32[name]).shape == (2, 7)


@pytest.mark.parametrize(
    ("name", "size"),
    [
        *(("alexnet", 62), ("densenet121", 28), ("vgg16", 31)),
        pytest.param("swin_t", 3, marks=from_torch("2.7")),  # before, without data no convolution looked at its kernel
    ],
)
def test_one_pixel_less_than_the_smallest_is_refused_and_would_indeed_fail(name, size):
    with pytest.raises(ConfigurationError, match=rf"{size + 1}x{size + 1} pixels.*data\.image_size={size + 1}"):
        build(name, image_size=size)
    with pytest.raises(RuntimeError):
        logits(build(name, image_size=size + 1), size)


def test_an_unknown_image_size_is_left_to_the_model():
    with OnMeta(torch.device("meta")):
        model = torchvision_model(name="vit_b_16", num_classes=7, image_size=None)
    assert logits(model, 224).shape == (2, 7)


def test_an_unknown_name_is_refused_with_the_nearest_ones():
    with pytest.raises(ConfigurationError, match=r"model\.name=resnet51: .* Did you mean .*resnet50.*doctor --models"):
        torchvision_model(name="resnet51", num_classes=7, image_size=32)


@pytest.mark.parametrize("name", tailed(FAMILIES, always=[name for name in FAMILIES if name in TOO_SMALL_32]))
def test_pretrained_weights_fit_but_for_the_classifier(name):
    """Weights of 1,000 classes, as torchvision's are, for a model of 7."""
    size = max(smallest(name), 32)
    options = {k: v for k, v in AUXILIARY.get(name, {}).items() if k != "aux_logits"}
    sized = {v: (size, size) if v == "input_size" else size for k, v in SIZED.items() if name.startswith(k)}
    with OnMeta(torch.device("meta")):
        state = models.get_model(name, **options, **sized).to("meta").state_dict()
    model = build(name, image_size=size)
    load_weights(model, state, "given")
    assert logits(model, size).shape == (2, 7)


@pytest.mark.parametrize("name", SLIM)
def test_all_but_the_classifier_is_loaded(name):
    torch.manual_seed(1)
    given = models.get_model(name, num_classes=5).state_dict()
    for classes in (5, 3):
        torch.manual_seed(2)
        model = torchvision_model(name=name, num_classes=classes, image_size=64)
        load_weights(model, given, "given")
        differing = [key for key, weight in model.state_dict().items() if not torch.equal(weight, given[key])]
        own = {key.rpartition(".")[0] for key in differing}
        assert len(own) == (classes != 5)
        assert not [key for key in differing if model.state_dict()[key].shape[0] != classes]


def test_another_model_s_weights_are_refused():
    model = torchvision_model(name="squeezenet1_1", num_classes=3, image_size=32)
    before = {key: weight.clone() for key, weight in model.state_dict().items()}
    for other in ("squeezenet1_0", "shufflenet_v2_x0_5"):
        with pytest.raises(ConfigurationError, match=r"model\.pretrained=other\.pt holds the weights of another model"):
            load_weights(model, models.get_model(other, num_classes=3).state_dict(), "other.pt")
    assert all(torch.equal(weight, before[key]) for key, weight in model.state_dict().items())


@pytest.fixture
def no_network(monkeypatch, tmp_path):
    """Nobody listens at this proxy, so that a download fails at once, whatever network the machine has."""
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("weights", ["DEFAULT", "IMAGENET1K_V1", "MobileNet_V3_Small_Weights.IMAGENET1K_V1"])
@pytest.mark.timeout(20)
def test_weights_that_cannot_be_downloaded(weights):
    with pytest.raises(ConfigurationError, match=r"model\.pretrained=\S+ https://download\S+ can't be downloaded"):
        torchvision_model(name="mobilenet_v3_small", num_classes=3, image_size=32, weights=weights)


def test_downloaded_weights_are_used_from_then_on(monkeypatch, tmp_path):
    """A file where torch.hub keeps downloads is taken without a network."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    entry = models.MobileNet_V3_Small_Weights.IMAGENET1K_V1
    path = tmp_path / "hub" / "checkpoints" / entry.url.rpartition("/")[2]
    path.parent.mkdir(parents=True)
    torch.manual_seed(1)
    given = models.mobilenet_v3_small().state_dict()
    torch.save(given, path)
    model = torchvision_model(name="mobilenet_v3_small", num_classes=3, image_size=32, weights="DEFAULT")
    assert torch.equal(model.features[0][0].weight, given["features.0.0.weight"])
    assert model.classifier[3].weight.shape[0] == 3


def test_unknown_weights_are_refused_with_those_that_there_are():
    with pytest.raises(ConfigurationError, match=r"neither a local file nor .* Allowed: IMAGENET1K_V1, IMAGENET1K_V2"):
        torchvision_model(name="resnet50", num_classes=3, image_size=32, weights="IMAGENET22K")


def test_stochastic_depth_is_torchvision_s_own_where_it_has_it():
    def depths(name: str, probability: float | None) -> list[float]:
        with OnMeta(torch.device("meta")):
            model = torchvision_model(name=name, num_classes=7, image_size=32, stochastic_depth_prob=probability)
        return [module.p for module in model.modules() if type(module).__name__ == "StochasticDepth"]

    assert max(depths("convnext_tiny", 0.3)) == pytest.approx(0.3)
    assert max(depths("convnext_tiny", None)) == pytest.approx(0.1)  # its own
    with pytest.raises(
        ConfigurationError, match=r"model\.stochastic_depth_prob=0.3: torchvision's resnet18 has no such"
    ):
        depths("resnet18", 0.3)
