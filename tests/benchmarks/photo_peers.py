"""From a JPEG to a training sample of 224x224 as others do it; of libraries, those that are installed."""

from collections.abc import Callable
from typing import Any

from PIL import Image
from torchvision import transforms

SIZE = 224
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
Sample = Callable[[int], Any]


def classic_transform() -> Callable[[Image.Image], Any]:
    """What most training scripts have: PIL, and floats that are normalized in the loader."""
    return transforms.Compose(
        [
            transforms.RandomResizedCrop(SIZE),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize(MEAN, STD),
        ]
    )


def timms_transform() -> Callable[[Image.Image], Any]:
    """uint8 as timm's prefetcher takes them. Raises ImportError."""
    from timm.data.transforms_factory import transforms_imagenet_train

    return transforms_imagenet_train(SIZE, color_jitter=None, auto_augment=None, use_prefetcher=True)


def sample_by(transform: Callable[[Image.Image], Any], paths: list[str]) -> Sample:
    def sample(index: int) -> Any:
        with Image.open(paths[index]) as file:
            return transform(file.convert("RGB"))

    return sample


def decoding_alone(paths: list[str]) -> Sample:
    from torchvision.io import ImageReadMode, decode_jpeg, read_file

    return lambda index: decode_jpeg(read_file(paths[index]), mode=ImageReadMode.RGB)


def dali(paths: list[str], *, batch_size: int, threads: int, normalized: bool) -> Any:
    """NVIDIA DALI's iterator over shuffled batches for PyTorch, on the CPU, without an end. Raises ImportError.

    As its ResNet50 example has it, with this project's crops. It works two batches ahead.
    Source: https://docs.nvidia.com/deeplearning/dali/user-guide/docs/examples/use_cases/pytorch/resnet50/.
    """
    from nvidia.dali import fn, pipeline_def, types
    from nvidia.dali.plugin.pytorch import DALIGenericIterator

    scale = {"mean": [255 * value for value in MEAN], "std": [255 * value for value in STD]} if normalized else {}

    @pipeline_def(batch_size=batch_size, num_threads=threads, device_id=None, seed=1)
    def pipeline() -> Any:
        files, labels = fn.readers.file(files=paths, random_shuffle=True)
        crop = {"random_area": [0.08, 1.0], "random_aspect_ratio": [3 / 4, 4 / 3], "num_attempts": 10}
        images = fn.decoders.image_random_crop(files, device="cpu", output_type=types.RGB, **crop)
        images = fn.resize(images, resize_x=SIZE, resize_y=SIZE, interp_type=types.INTERP_TRIANGULAR)
        images = fn.crop_mirror_normalize(
            images,
            dtype=types.FLOAT if normalized else types.UINT8,
            output_layout="CHW",
            crop=(SIZE, SIZE),
            mirror=fn.random.coin_flip(probability=0.5),
            **scale,
        )
        return images, labels

    return DALIGenericIterator([pipeline()], ["images", "labels"])
