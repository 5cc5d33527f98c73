"""A batch as the model gets it: pixels are scaled, other bytes stay, and nothing is rounded away."""

import pytest
import torch

from manyheads.runner.data.rank.custom import Custom
from manyheads.runner.data.rank.input_transform import InputTransform
from manyheads.runner.errors import ConfigurationError
from tests.in_process import small, train

CPU = torch.device("cpu")


def transform(*, channels: int = 1, dtype: torch.dtype = torch.float32, mean: float = 0.0, std: float = 1.0):
    return InputTransform(CPU, dtype, False, (mean,) * channels, (std,) * channels)


def image(*shape: int, dtype: torch.dtype = torch.uint8) -> torch.Tensor:
    return torch.full(shape, 102, dtype=dtype)


ALONE = {  # channels of mean and std, shape of a batch, and whether it is scaled
    "grey": (1, (2, 1, 4, 4), True),
    "colour": (1, (2, 3, 4, 4), True),
    "colour, normalized": (3, (2, 3, 4, 4), True),
    "bands, declared": (5, (2, 5, 4, 4), True),
    "video": (3, (2, 6, 3, 4, 4), True),
    "tokens": (1, (2, 7), False),
    "a byte": (1, (2,), False),
    "bands": (1, (2, 5, 4, 4), None),
    "grey, declared as colour": (3, (2, 1, 4, 4), None),
    "plane or sequence": (1, (2, 4, 4), None),
}


@pytest.mark.parametrize(("channels", "shape", "is_scaled"), ALONE.values(), ids=ALONE)
def test_bytes_are_scaled_if_they_are_images_and_refused_if_that_is_unclear(channels, shape, is_scaled):
    if is_scaled is None:
        with pytest.raises(ConfigurationError, match=r"uint8 tensor \(.*\), which may be an image or not.*as floats"):
            transform(channels=channels).inputs(image(*shape))
        return
    found = transform(channels=channels).inputs(image(*shape))
    assert found.dtype == (torch.float32 if is_scaled else torch.uint8)
    assert found.flatten()[0].item() == pytest.approx(0.4 if is_scaled else 102)


PHOTO, FLOATS = image(2, 3, 4, 4), torch.ones(2, 9)
BESIDE = {  # the other input, the uint8 tensor, and whether it is scaled
    "sequence mask": (FLOATS, image(2, 9), False),
    "sequence mask, unsqueezed": (FLOATS, image(2, 1, 9), False),
    "plane of a float image": (PHOTO.float(), image(2, 4, 4), False),
    "second view": (PHOTO, image(2, 3, 8, 8), True),
    "photo beside tokens": (FLOATS.long(), PHOTO, True),
    "mask of a photo": (PHOTO, image(2, 1, 4, 4), None),
    "one-hot mask of a float image": (PHOTO.float(), PHOTO, None),
}


@pytest.mark.parametrize("is_label", [False, True])
@pytest.mark.parametrize(("other", "tensor", "is_scaled"), BESIDE.values(), ids=BESIDE)
def test_beside_another_input_only_further_images_are_scaled(other, tensor, is_scaled, is_label):
    batch, labels = {"x": other, "more": [tensor]}, [tensor] if is_label else []
    if is_scaled is None and not is_label:
        with pytest.raises(ConfigurationError, match="may be a mask"):
            transform().inputs(batch, labels)
        return
    found = transform().inputs(batch, labels)["more"][0]
    assert found.dtype == (torch.float32 if is_scaled else torch.uint8)
    assert is_scaled or torch.equal(found, tensor)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int16, torch.bool, torch.complex64, torch.complex128])
def test_other_dtypes_than_floats_stay(dtype):
    assert transform().inputs(torch.ones(2, 3, dtype=dtype)).dtype == dtype


TIMES = 1.7e9 + torch.arange(64).double()[:, None] * 15_000 + 7
FITTING = {
    "standardized": torch.linspace(-2, 2, 64).double()[:, None],
    "images": torch.rand(4, 3, 8, 8, dtype=torch.float64),
    "kelvin": torch.linspace(280, 300, 64).double()[:, None],
    "constant": torch.full((64, 1), 0.1, dtype=torch.float64),
    "constant but for rounding": torch.tensor([[0.3], [0.1 + 0.2]], dtype=torch.float64),
    "one sample": TIMES[:1],
    "whole numbers": 2.0**24 - torch.arange(64).double()[:, None],
    "unknown": torch.tensor([[float("nan")], [float("inf")], [1.0]], dtype=torch.float64),
    "empty": torch.zeros(0, 3, dtype=torch.float64),
    "a number": torch.tensor(1.7e9 + 1, dtype=torch.float64),
    "float32": TIMES.float(),
    "int64": TIMES.long(),
}
UNFIT = {
    "times": TIMES,
    "times beside others": torch.cat([torch.randn(64, 2).double(), TIMES], 1),
    "times of a sequence": TIMES[:, None].expand(64, 5, 1),
    "a vector of times": TIMES[:, 0],
    "too large": torch.tensor([[1e300], [2e300]], dtype=torch.float64),
    "too small": torch.tensor([[1e-60], [2e-60]], dtype=torch.float64),
}


@pytest.mark.parametrize("name", FITTING)
def test_inputs_that_fit_are_accepted_and_their_rounding_is_measured(name):
    rounding = transform().check({"x": FITTING[name]})
    assert (0 < rounding < 1e-5) == (name == "images")


class Doubles(torch.utils.data.Dataset):
    """Numbers of double precision, up to ``offset``, and their sums."""

    def __init__(self, split: str, offset: float):
        self.x = offset + torch.rand(40, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int):
        return self.x[index], (self.x[index] - self.x[0]).sum().float()


DOUBLES = (
    *("data=custom", "data._target_=tests.data.test_input_transform.Doubles", "data.batch_size=8", "trainer.epochs=2"),
    *("model=mlp", "model.num_inputs=3", "model.num_classes=1", "model.width=4", "task=regression"),
)


def test_rounding_that_is_not_refused_is_reported_once(tmp_path, capsys):
    said = "float64 inputs are rounded to float32, by up to 4e-08 of the spread of a feature's values."
    train(tmp_path / "single", small(*DOUBLES, "+data.offset=0"))
    assert " ".join(capsys.readouterr().out.split()).count(said) == 1
    train(tmp_path / "double", small(*DOUBLES, "+data.offset=0", "precision=fp64"))
    assert "are rounded" not in capsys.readouterr().out
    with pytest.raises(ConfigurationError, match=r"becomes .*Standardize them.*precision=fp64"):
        train(tmp_path / "refused", small(*DOUBLES, "+data.offset=1e7"))


@pytest.mark.parametrize("values", UNFIT.values(), ids=UNFIT)
def test_float64_inputs_that_float32_cannot_tell_apart_are_refused_except_in_double_precision(values):
    with pytest.raises(ConfigurationError, match=r"becomes .*Standardize them.*precision=fp64"):
        transform().check([FLOATS, values])
    transform(dtype=torch.float64).check([FLOATS, values])
    assert torch.equal(transform(dtype=torch.float64).inputs(values), values)


class Declaring:
    num_classes = 2

    def __init__(self, split: str, mean: object, std: object):
        if mean is not None:
            self.mean = mean
        if std is not None:
            self.std = std

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> int:
        return index


@pytest.mark.parametrize(
    ("mean", "std", "pixel"),
    [
        (None, None, 0.4),
        ((0.5,), (0.25,), -0.4),
        (0.5, 0.25, -0.4),
        (torch.tensor([0.5]), None, -0.1),
        ([0.5, 0.5, 0.5], torch.full((3,), 0.25).numpy(), -0.4),
        (lambda: 0.5, None, 0.4),  # a method is not a declaration
    ],
)
def test_the_mean_and_std_that_a_class_declares_normalize_its_uint8_images(mean, std, pixel):
    data = Custom(Declaring, ("train",), root=None, num_classes=None, mean=mean, std=std)
    found = InputTransform(CPU, torch.float32, False, data.mean, data.std).inputs(PHOTO)
    assert found.flatten()[0].item() == pytest.approx(pixel)


@pytest.mark.parametrize("mean", [(124.0,), (0.5, 0.5)])
def test_a_declared_mean_that_cannot_be_one_is_refused_for_images_only(mean):
    data = Custom(Declaring, ("train",), root=None, num_classes=None, mean=mean, std=(1.0,))
    made = InputTransform(CPU, torch.float32, False, data.mean, data.std)
    assert torch.equal(made.inputs(FLOATS), FLOATS)
    with pytest.raises(ConfigurationError, match="means from 0 to 1|as many channels"):
        made.inputs(PHOTO)
