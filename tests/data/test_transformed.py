"""Geometric transforms change all of a sample that has the image's height and width, and no other transform does."""

import pytest
import torch
from PIL import Image
from torchvision import transforms, tv_tensors
from torchvision.transforms import v2

from manyheads.runner.data.rank.transformed import Transformed
from manyheads.runner.errors import ConfigurationError

PHOTO = torch.rand(3, 6, 8, generator=torch.Generator().manual_seed(1))
MOVES = [v2.RandomHorizontalFlip(1), v2.RandomVerticalFlip(1), v2.RandomCrop(4)]
MOVES += [v2.RandomRotation((90, 90), expand=True)]
LIKE = {
    "plane": lambda image: (1 - image)[0],
    "channel": lambda image: (1 - image)[:1],
    "image": lambda image: 1 - image,
    "bands": lambda image: image.repeat(2, 1, 1),
    "frames": lambda image: torch.stack([image, -image]),
    "numbers": lambda image: (image * 100).long()[1],
    "bytes": lambda image: (image[:1] * 255).to(torch.uint8),
    "pairs": lambda image: {"depth": image[:1], "masks": [image[2] > 0.5, image[1:]]},
}


def equal(one: object, other: object) -> bool:
    if isinstance(one, torch.Tensor):
        return type(one) is torch.Tensor and torch.equal(one, other)
    pairs = zip(one.values(), other.values(), strict=True) if isinstance(one, dict) else zip(one, other, strict=True)
    return all(equal(*pair) for pair in pairs)


@pytest.mark.parametrize("move", MOVES, ids=lambda move: type(move).__name__)
@pytest.mark.parametrize("like", LIKE.values(), ids=LIKE)
@pytest.mark.parametrize("color", [None, v2.ColorJitter(0.5, 0.5)], ids=["", "and colour"])
def test_what_is_computed_from_each_pixel_stays_so(like, move, color):
    """The target of the moved image is the moved target; colours change in the image alone."""
    if color is None:
        image, target, label = Transformed([(PHOTO, like(PHOTO), 3)], [move])[0]
        assert equal(target, like(image))
        assert (label, type(image)) == (3, torch.Tensor)
        return
    torch.manual_seed(1)
    plain, target, _ = Transformed([(PHOTO, like(PHOTO), 3)], [move])[0]
    torch.manual_seed(1)
    image, same, _ = Transformed([(PHOTO, like(PHOTO), 3)], [move, color])[0]
    assert equal(same, target)
    assert not torch.equal(image, plain)


def test_entries_after_the_target_and_of_a_dict_are_moved_too():
    flip = [v2.RandomHorizontalFlip(1)]
    image, label, mask = Transformed([(PHOTO, 1, PHOTO[0])], flip)[0]
    assert (torch.equal(image[0], mask), torch.equal(mask, PHOTO[0].flip(-1)), label) == (True, True, 1)
    found = Transformed([{"id": 7, "pixels": PHOTO, "mask": PHOTO[0]}], flip)[0]
    assert [*found] == ["id", "pixels", "mask"]
    assert (torch.equal(found["pixels"][0], found["mask"]), found["id"]) == (True, 7)


def test_a_mask_is_moved_with_an_image_of_pil():
    picture = Image.fromarray((PHOTO[0] * 255).to(torch.uint8).numpy())
    found, mask = Transformed([(picture, PHOTO[0])], [v2.RandomHorizontalFlip(1), v2.PILToTensor()])[0]
    assert torch.equal(mask, PHOTO[0].flip(-1))
    assert torch.equal(found[0], (mask * 255).to(torch.uint8))


def test_boxes_of_torchvision_are_moved():
    boxes = tv_tensors.BoundingBoxes([[0, 0, 2, 3]], format="XYXY", canvas_size=(6, 8))
    _, target = Transformed([(PHOTO, {"boxes": boxes})], [v2.RandomHorizontalFlip(1)])[0]
    assert target["boxes"].tolist() == [[6, 0, 8, 3]]
    assert type(target["boxes"]) is torch.Tensor


@pytest.mark.parametrize("target", [torch.rand(1, 3, 4), torch.rand(5, 4)], ids=["heatmap", "boxes"])
def test_positions_that_cannot_follow_are_refused_once_the_image_moves(target):
    image, same = Transformed([(PHOTO, target)], [v2.ColorJitter(0.5), v2.RandomHorizontalFlip(0)])[0]
    assert torch.equal(same, target)
    assert not torch.equal(image, PHOTO)
    with pytest.raises(ConfigurationError, match=r"image was moved, and the tensor \(.*BoundingBoxes"):
        Transformed([(PHOTO, target)], [v2.RandomHorizontalFlip(1)])[0]


def test_a_transform_of_the_image_alone_is_refused_beside_what_it_would_have_to_change():
    for alone in (transforms.RandomHorizontalFlip(1), lambda image: image.flip(-1)):
        with pytest.raises(ConfigurationError, match=r"takes the image alone.*transforms\.v2, or one that is called"):
            Transformed([(PHOTO, PHOTO)], [alone])[0]
        assert torch.equal(Transformed([(PHOTO, torch.rand(4))], [alone])[0][0], PHOTO.flip(-1))
    image, target = Transformed([(PHOTO, PHOTO[0])], [lambda *both: [each.flip(-1) for each in both]])[0]
    assert torch.equal(image[0], target)
