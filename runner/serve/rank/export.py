"""A trained model as a file for other programs, checked by loading it again before it gets its name."""

import json
import shutil
from pathlib import Path
from typing import Any

import torch

from manyheads.runner.checkpoint.rank.load import weights_sha256
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run import scratch
from manyheads.runner.run.files import whole_file
from manyheads.runner.serve.formats import FORMATS, refuse_missing
from manyheads.runner.serve.rank.export_formats import WRITERS, Served, Writer
from manyheads.runner.serve.rank.predict_images import refuse_folder
from manyheads.runner.serve.rank.trained import Trained

BOUND = 1e-4  # of the largest output; rounding in another order stays far below it
CHECKED = (1, 5)  # other numbers of samples, so that a batch of a fixed size is noticed


class Differs(RuntimeError):
    """The exported file does not compute what the model does."""


def export(trained: Trained, format: str, out: Path) -> float:
    """Write the model with its normalization to ``out``; returns the largest difference of its outputs.

    That is relative to the largest output. If it exceeds BOUND, nothing is written. Raises Differs in that case, and
    ConfigurationError for a model that cannot be exported.
    """
    refuse_missing(format)
    refuse_folder(out)
    writer = WRITERS[format]
    served = Served(trained, weights_only=writer.weights_only).eval()
    with scratch.folder() as folder:
        file = folder / f"model{FORMATS[format].suffix}"
        try:
            writer.write(served, file, facts(trained, served))
        except Exception as error:  # tracing meets a model's code with errors of every kind
            reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
            raise ConfigurationError(f"{trained.folder}: its model can't be exported as {format}: {reason}") from error
        if not (difference := compared(writer, file, served)) <= BOUND:
            raise Differs(
                f"{trained.folder}: exported as {format}, its outputs differ by {difference:.1e} of the largest one, "
                f"more than {BOUND:g}. No file was left."
            )
        with open(file, "rb") as source, whole_file(out.parent.resolve() / out.name) as target:
            shutil.copyfileobj(source, target)
    return difference


@torch.inference_mode()
def compared(writer: Writer, file: Path, served: Served) -> float:
    """The largest relative difference between the outputs of the model and of its file; inf for another shape.

    If the model's inputs are unknown, it is 0 for equal weights, and otherwise inf.
    """
    if served.shape is None:
        one, other = (weights_sha256(source.model.state_dict()) for source in (served, writer.again(file, served)))
        return 0.0 if one == other else float("inf")
    largest = 0.0
    for count in CHECKED:
        images = served.examples(count)
        expected, outputs = served(images), writer.outputs(file, served, images)
        if expected.shape != outputs.shape:
            return float("inf")
        relative = (expected - outputs).abs().max() / expected.abs().max().clamp(min=torch.finfo(torch.float32).tiny)
        largest = max(largest, float(relative.nan_to_num(nan=float("inf"))))
    return largest


def facts(trained: Trained, served: Served) -> dict[str, str]:
    """Metadata for users of the file, each value as JSON."""
    about = trained.description
    shape = None if served.shape is None else ["batch", *served.shape]
    metadata: dict[str, Any] = {
        "producer": "manyheads",
        "model": trained.config["model"]["name"],
        "input": shape and {"name": "images", "dtype": "float32", "shape": shape, "range": served.range},
        "output": {"name": "outputs", "kind": about.outputs},
        "classes": about.classes,
        "mean": about.mean,
        "std": about.std,
        "preprocess": about.to_json()["preprocess"],
        **({} if about.table is None else {"table": about.table}),
        "weights": trained.which,
        "weights_sha256": weights_sha256(trained.model.state_dict()),
        "metrics": trained.metrics,
    }
    return {name: json.dumps(value) for name, value in metadata.items()}
