"""The formats of exported models, and what each needs; without torch."""

from importlib.util import find_spec
from typing import NamedTuple

from manyheads.runner.errors import Unavailable


class Format(NamedTuple):
    """``suffix``: of its files; ``packages``: without which it cannot be written, by the names that import them."""

    suffix: str
    packages: tuple[str, ...] = ()


FORMATS = {
    "torch_export": Format(".pt2"),
    "onnx": Format(".onnx", ("onnx", "onnxscript")),
    "safetensors": Format(".safetensors", ("safetensors",)),
}


def refuse_missing(name: str) -> None:
    """Raises Unavailable, with the command to install them, for a format whose packages are missing."""
    if missing := [package for package in FORMATS[name].packages if find_spec(package) is None]:
        raise Unavailable.at(
            "--format", name, f" needs {' and '.join(missing)}. Install: pip install {' '.join(missing)}"
        )
