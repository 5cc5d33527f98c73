"""The input pipeline: 500x375 JPEGs to 224x224 training samples, one process on one core."""

import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import skimage.data
import torch
from PIL import Image
from torchvision import transforms

from runner.data.photos import Photos
from tests.benchmarks.measure import Comparison, compare

PHOTOS = ("astronaut", "chelsea", "coffee", "rocket")
COUNT, SIZE = 64, 224


def save(folder: Path) -> list[str]:
    """JPEGs as ImageNet's are on average, of some 50 KB."""
    for number in range(COUNT):
        photo = Image.fromarray(getattr(skimage.data, PHOTOS[number % len(PHOTOS)])()).convert("RGB")
        photo.resize((500, 375), Image.Resampling.LANCZOS).save(folder / f"{number}.jpg", quality=88 + number % 7)
    return [str(folder / f"{number}.jpg") for number in range(COUNT)]


def classic(paths: list[str]) -> Callable[[int], object]:
    """What most training scripts have: PIL, and floats that are normalised in the loader."""
    view = transforms.Compose(
        [
            transforms.RandomResizedCrop(SIZE),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ]
    )

    def sample(index: int) -> object:
        with Image.open(paths[index]) as file:
            return view(file.convert("RGB"))

    return sample


def decoding_alone(paths: list[str]) -> Callable[[int], object]:
    from torchvision.io import ImageReadMode, decode_jpeg, read_file

    return lambda index: decode_jpeg(read_file(paths[index]), mode=ImageReadMode.RGB)


def timms(paths: list[str]) -> Callable[[int], object]:
    """timm's transforms for training, uint8 as its prefetcher takes them."""
    from timm.data.transforms_factory import transforms_imagenet_train

    view = transforms_imagenet_train(SIZE, color_jitter=None, auto_augment=None, use_prefetcher=True)

    def sample(index: int) -> object:
        with Image.open(paths[index]) as file:
            return view(file.convert("RGB"))

    return sample


def measure() -> Comparison:
    """Seconds for every photo once. timm where it is installed: pip install -e '.[bench]'."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", DeprecationWarning)  # torchvision.io's, which is only measured here
    with tempfile.TemporaryDirectory() as scratch:
        paths = save(Path(scratch))
        ours = Photos(paths, [0] * COUNT, image_size=SIZE, train=True)
        candidates = {"PIL, ToTensor, Normalize": classic(paths), "manyheads": ours.__getitem__}
        candidates["torchvision.io.decode_jpeg alone"] = decoding_alone(paths)
        with suppress(ImportError):
            candidates["timm"] = timms(paths)
        found = compare("JPEG to training sample", {k: _timed(v) for k, v in candidates.items()}, rounds=15)
    torch.set_num_threads(threads)
    return found


def _timed(sample: Callable[[int], object]) -> Callable[[], float]:
    def seconds() -> float:
        start = time.perf_counter()
        for index in range(COUNT):
            sample(index)
        return time.perf_counter() - start

    return seconds
