"""Which part of a photo a sample shows: drawn as torchvision.transforms draws it."""

import random

import numpy as np
import pytest
import torch
from torchvision import transforms

from manyheads.runner.data.rank.crops import AREA, evaluation_view, random_crop

DRAWS = 4000
SIZES = [(375, 500), (500, 375), (64, 640), (300, 300)]


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


def test_areas_reach_from_end_to_end():
    random.seed(1)
    shares = [h * w / (375 * 500) for _, _, h, w in (random_crop(375, 500) for _ in range(DRAWS))]
    assert min(shares) == pytest.approx(AREA[0], abs=0.01)
    assert max(shares) > 0.9


@pytest.mark.parametrize("height", [375, 500, 224, 10])
def test_evaluation_brings_the_shorter_side_to_the_classic_length(height):
    view = evaluation_view(height, 500, 224)
    image = transforms.Resize(256)(torch.empty(3, height, 500))
    assert view.scaled == tuple(image.shape[1:])
    assert view.box == (0, 0, height, 500)
