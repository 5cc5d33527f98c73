"""The pipeline against the classic one of PIL and torchvision.transforms: the same distribution and pixels."""

import random
from pathlib import Path

import numpy as np
import pytest
import skimage.data
import torch
from PIL import Image
from torchvision import transforms

from runner.data.photos import AREA, Photos, Picture, cropped, evaluation_view, random_crop, training_view
from runner.rng import seed_sample

DRAWS = 4000
SIZES = [(375, 500), (500, 375), (64, 640), (300, 300)]


@pytest.fixture(params=["astronaut", "coffee", "chelsea"])
def photo(request, tmp_path) -> Path:
    path = tmp_path / "photo.jpg"
    Image.fromarray(getattr(skimage.data, request.param)()).resize((500, 375)).save(path, quality=92)
    return path


def classic_crops(height: int, width: int) -> np.ndarray:
    """(DRAWS, 4): top, left, height, width."""
    image = torch.empty(3, height, width)
    draw = transforms.RandomResizedCrop.get_params
    return np.array([draw(image, [0.08, 1.0], [3 / 4, 4 / 3]) for _ in range(DRAWS)])


@pytest.mark.parametrize(("height", "width"), SIZES)
def test_crops_are_drawn_as_the_classic_ones_are(height, width):
    """Deciles of area, aspect and place, each to 2 % of the range."""
    random.seed(1)
    torch.manual_seed(1)
    ours = np.array([random_crop(height, width) for _ in range(DRAWS)])
    classic = classic_crops(height, width)
    for crops in (ours, classic):
        assert (crops[:, :2] >= 0).all()
        assert (crops[:, 0] + crops[:, 2] <= height).all()
        assert (crops[:, 1] + crops[:, 3] <= width).all()

    def features(crops):
        top, left, h, w = crops.T.astype(float)
        return {
            "area": h * w / (height * width),
            "aspect": np.log(w / h),
            "top": top / height,
            "left": left / width,
        }

    deciles = np.linspace(0.1, 0.9, 9)
    for name, values in features(ours).items():
        others = features(classic)[name]
        apart = np.abs(np.quantile(values, deciles) - np.quantile(others, deciles)).max()
        assert apart < 0.05 * max(np.ptp(others), 0.2), name


def test_an_image_in_which_no_crop_fits_gives_its_middle():
    random.seed(1)
    assert random_crop(10, 1000) == (0, (1000 - 13) // 2, 10, 13)
    assert random_crop(1000, 10) == ((1000 - 13) // 2, 0, 13, 10)


def test_half_of_the_crops_are_mirrored(tmp_path):
    pixels = np.zeros((8, 8, 3), np.uint8)
    pixels[:, 4:] = 255
    Image.fromarray(pixels).save(tmp_path / "half.png")
    picture = Picture(tmp_path / "half.png")
    random.seed(1)
    mirrored = sum(bool(view[0, 4, 0] > view[0, 4, -1]) for view in (training_view(picture, 8) for _ in range(2000)))
    assert 700 < mirrored < 1100  # of some crops both sides are alike


def classic(path: Path, box: tuple[int, int, int, int], size: int) -> torch.Tensor:
    top, left, height, width = box
    with Image.open(path) as file:
        crop = file.convert("RGB").crop((left, top, left + width, top + height))
        return transforms.functional.pil_to_tensor(crop.resize((size, size), Image.Resampling.BILINEAR))


BOXES = [(0, 0, 375, 500), (40, 60, 224, 224), (10, 20, 300, 250), (100, 100, 80, 90), (5, 7, 333, 411)]


@pytest.mark.parametrize("box", BOXES)
@pytest.mark.parametrize("larger", [1, 4])  # four times as large, so that less is decoded
def test_pixels_of_fixed_crops_are_the_classic_ones(photo, box, larger):
    with Image.open(photo) as file:
        file.resize((500 * larger, 375 * larger), Image.Resampling.LANCZOS).save(photo, quality=92)
    box = tuple(larger * side for side in box)
    ours = cropped(Picture(photo), box, 224)
    assert ours.dtype == torch.uint8
    assert (ours.int() - classic(photo, box, 224).int()).abs().double().mean() <= 2


@pytest.mark.parametrize("share", [1.0, 0.51, 0.5, 0.3, 0.25, 0.01])
def test_no_more_is_decoded_than_needed(photo, share):
    height = Picture(photo).decoded(at_least=share).shape[1]
    assert 375 * share <= height <= (375 if share > 0.5 else 375 * (share + 0.13))
    assert (height == 375) == (share > 0.5)


@pytest.mark.parametrize("box", [(0, 0, 1, 1), (374, 499, 1, 1), (0, 0, 375, 1), (370, 0, 5, 500)])
def test_the_smallest_crops_have_pixels(photo, box):
    assert cropped(Picture(photo), box, 1).shape == (3, 1, 1)


def test_mean_colour_of_training_crops_is_the_classic_one(photo):
    random.seed(1)
    torch.manual_seed(1)
    dataset = Photos([str(photo)], [0], image_size=64, train=True)
    classic = transforms.Compose(
        [transforms.RandomResizedCrop(64), transforms.RandomHorizontalFlip(), transforms.PILToTensor()]
    )
    with Image.open(photo) as file:
        image = file.convert("RGB")
    ours = torch.stack([dataset[0][0].double().mean((1, 2)) for _ in range(300)])
    theirs = torch.stack([classic(image).double().mean((1, 2)) for _ in range(300)])
    error = (ours.var(0) / 300 + theirs.var(0) / 300).sqrt()
    assert ((ours.mean(0) - theirs.mean(0)).abs() < 4 * error + 0.5).all()


@pytest.mark.parametrize("shape", [(375, 500), (500, 375), (256, 256), (100, 80)])
def test_evaluation_takes_the_classic_centre(photo, shape):
    with Image.open(photo) as file:
        image = file.convert("RGB").resize(shape[::-1])
    image.save(photo.with_suffix(".png"))
    ours = evaluation_view(Picture(photo.with_suffix(".png")), 224)
    classic = transforms.Compose([transforms.Resize(256), transforms.CenterCrop(224), transforms.PILToTensor()])(image)
    assert ours.shape == classic.shape
    assert (ours.int() - classic.int()).abs().double().mean() <= 2


def test_a_sample_is_the_same_for_the_same_key(photo):
    dataset = Photos([str(photo)], [0], image_size=64, train=True)
    views = []
    for key in (7, 8, 7):
        seed_sample(key)
        views.append(dataset[0][0])
    assert torch.equal(views[0], views[2])
    assert not torch.equal(views[0], views[1])


def test_areas_reach_from_end_to_end():
    random.seed(1)
    shares = [h * w / (375 * 500) for _, _, h, w in (random_crop(375, 500) for _ in range(DRAWS))]
    assert min(shares) == pytest.approx(AREA[0], abs=0.01)
    assert max(shares) > 0.9
