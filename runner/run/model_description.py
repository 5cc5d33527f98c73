"""model.json: what must be known about a trained model to use it without its data, read and written without torch.

It is a separate file in the run folder: run.yaml would need another seal and format, and any program can read it,
unlike a checkpoint. It holds facts about the data, never the name of anything that runs.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.data_files import read_json
from manyheads.runner.run.run_folder import RunFolder

FORMAT = 1
LARGEST_SIDE = 2**13  # pixels; a description from anybody must not ask for all of the memory
MOST_NUMBERS = 2**26  # of a sample
MODES = ("L", "RGB")
RESIZE = ("shorter_side", "square")
DTYPES = ("uint8", "float16", "bfloat16", "float32", "float64")


@dataclass(frozen=True)
class Steps:
    """How an image becomes a sample in eight bits: converted to ``mode``, resized bilinearly with antialias, cropped.

    ``resize``: "shorter_side", to ``size`` pixels, computed in eight bits; or "square", both sides, computed in float32
    and rounded. ``crop``: the side of the square that is cropped from the centre; None to keep all.
    """

    mode: str
    resize: str
    size: int
    crop: int | None = None

    @staticmethod
    def of(declared: Any) -> "Steps | None":
        """The preprocessing that a data set, or model.json, declares; None if it is invalid."""
        if not isinstance(declared, Mapping) or not {*declared} <= {field.name for field in fields(Steps)}:
            return None
        values: list[Any] = [declared.get(field.name) for field in fields(Steps)]
        mode, resize, size, crop = values
        if mode not in MODES or resize not in RESIZE or not _is_side(size):
            return None
        return Steps(mode, resize, size, crop) if crop is None or (_is_side(crop) and crop <= size) else None


@dataclass(frozen=True)
class Description:
    """A trained model's inputs and outputs; None for what is unknown.

    ``shape`` and ``dtype``: of one sample as the data set returns it, if the model takes one tensor. ``mean``, ``std``:
    of each channel, for images in 0..1. ``image_size``: as the data declares it, for models that are built for one
    size. ``outputs``: "logits" if the model returns one for each class. ``pretrained``: the initial weights. ``table``:
    how a row of a file becomes a sample, and what the outputs mean (``data/table/encoding.py``).
    """

    num_classes: int | None = None
    classes: tuple[str, ...] | None = None
    image_size: int | None = None
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    preprocess: Steps | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    outputs: str | None = None
    pretrained: str | None = None
    table: Mapping[str, Any] | None = None

    @property
    def is_images(self) -> bool:
        """Whether a sample is an image, (C, H, W)."""
        return self.shape is not None and len(self.shape) == 3

    def label(self, number: int) -> str:
        """A class's name, or its number if it has none."""
        return self.classes[number] if self.classes and number < len(self.classes) else str(number)

    def to_json(self) -> dict[str, Any]:
        return {"format": FORMAT, **asdict(self)}


def write(folder: RunFolder, description: Description) -> None:
    """Write model.json."""
    folder.write_json(folder.description, description.to_json())


def read(folder: RunFolder) -> Description:
    """Read model.json. Raises ConfigurationError if it is missing or invalid."""
    try:
        content = read_json(folder.description)
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigurationError(f"{folder} has no {folder.description.name}. Restore it from a copy.") from None
    if not isinstance(version := content.get("format"), int) or version > FORMAT:
        raise ConfigurationError(f"{folder.description} was written by a newer version of manyheads. Update it.")
    for key, is_right in _RIGHT.items():
        if content.get(key) is not None and not is_right(content[key]):
            raise ConfigurationError(f"{folder.description} cannot be read: {key} has another type. Restore it.")
    values: dict[str, Any] = {field.name: content.get(field.name) for field in fields(Description)}
    lists = {key: tuple(value) for key, value in values.items() if isinstance(value, list)}
    return Description(**{**values, **lists, "preprocess": Steps.of(values["preprocess"])})


def numbers(value: Any) -> tuple[float, ...] | None:
    """The mean or std that a data set declares, if it is one number for each channel."""
    if not isinstance(value, (tuple, list)) or not all(map(_is_finite, value)) or not 1 <= len(value) <= LARGEST_SIDE:
        return None
    return tuple(map(float, value))


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _is_side(value: Any) -> bool:
    return _is_whole(value) and value <= LARGEST_SIDE


def _are_few(sides: list[Any]) -> bool:
    return all(map(_is_whole, sides)) and math.prod(sides) <= MOST_NUMBERS


def _is_finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _are_numbers(value: Any) -> bool:
    return numbers(value) is not None


_RIGHT = {
    "num_classes": lambda value: _is_whole(value) and value <= 2**24,
    "classes": lambda value: isinstance(value, list) and all(isinstance(name, str) for name in value),
    "image_size": _is_side,
    "shape": lambda value: isinstance(value, list) and len(value) <= 8 and _are_few(value),
    "dtype": lambda value: value in DTYPES,
    "preprocess": lambda value: Steps.of(value) is not None,
    "mean": _are_numbers,
    "std": lambda value: _are_numbers(value) and all(value),
    "outputs": lambda value: value == "logits",
    "pretrained": lambda value: isinstance(value, str),
    "table": lambda value: isinstance(value, dict),
}
