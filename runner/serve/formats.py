"""The formats of exported models, and what each needs; without torch."""

from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from manyheads.runner.errors import ConfigurationError, Unavailable, WrongValue
from manyheads.runner.run.run_folder import RunFolder


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


BEST, LAST = "best", "last"


def chosen(folder: RunFolder, which: str | None = None) -> tuple[str, Path]:
    """The name of the weights, "best" or "last", and their checkpoint; without ``which`` the best if there are any.

    Raises ConfigurationError.
    """
    paths = {BEST: folder.best_checkpoint, LAST: folder.last_checkpoint}
    if which is not None and which not in paths:
        message = f"{which}: there are no such weights. Allowed: {', '.join(paths)}."
        raise WrongValue(message, key="--weights", value=which, allowed=[*paths])
    found = [name for name in ([which] if which else paths) if paths[name].exists()]
    if not found:
        raise ConfigurationError(
            f"{folder} has no {which + ' ' if which else ''}weights: {paths[which or LAST]} does not exist. Name a run "
            "that has been trained, with checkpoint.every other than 0."
        )
    return found[0], paths[found[0]]
