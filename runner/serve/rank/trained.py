"""``manyheads.load``: a run's trained model, ready to be used without its data."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from omegaconf import OmegaConf
from torch import Tensor, nn

from manyheads.runner.checkpoint.fetch import at_hand, with_weights
from manyheads.runner.checkpoint.rank.fit import load_model
from manyheads.runner.checkpoint.rank.load import load as load_checkpoint
from manyheads.runner.config.typed_packages import names
from manyheads.runner.data.data_option import Data
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.model.rank.build_model import bare_model
from manyheads.runner.option.locate import load as load_named
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.option.tree import Section
from manyheads.runner.provenance.copies import copies
from manyheads.runner.provenance.past_config import admitted
from manyheads.runner.provenance.started_in import as_started
from manyheads.runner.run.json_types import Numbers
from manyheads.runner.run.model_description import Description, read
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.run.weights import chosen
from manyheads.runner.serve.rank.preprocess import Preprocess

TOP = 5
AT_ONCE = 64  # images in a batch
MOST_AT_ONCE = 2**26  # numbers in a batch of several images


@dataclass(frozen=True)
class Prediction:
    """The likeliest class ``label`` with number ``index`` and its ``probability``; ``top``: the five likeliest."""

    label: str
    probability: float
    index: int
    top: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Trained:
    """A trained model with everything needed to use it.

    model: in evaluation mode, float32, on the CPU; preprocess: from an image to the model's input, (C, H, W) float32;
    classes: their names, None if the run did not know them; config: run.yaml; metrics: of these weights, as far as they
    were measured; which: "best" or "last".
    """

    model: nn.Module
    preprocess: Preprocess
    classes: tuple[str, ...] | None
    config: Section
    metrics: Numbers
    description: Description
    folder: Path
    which: str

    def __repr__(self) -> str:
        return f"<{type(self.model).__name__} with the {self.which} weights of {self.folder}>"

    @property
    def at_once(self) -> int:
        """How many images make a batch: fewer if they are large."""
        steps = self.description.preprocess
        side = 0 if steps is None else steps.crop or steps.size
        return max(1, min(AT_ONCE, MOST_AT_ONCE // (3 * side**2 + 1)))

    def predict(self, images: Any) -> Any:
        """A Prediction for an image; a list of them for a list of images or a batch (N, C, H, W).

        images: PIL images, paths, uint8 arrays (H, W[, C]) and uint8 tensors (C, H, W), which are preprocessed. A batch
        of floats is taken as preprocessed; a uint8 batch is only normalized. Runs on the device of ``model``.

        Raises ConfigurationError if the model does not predict classes, and for inputs that are not images.
        """
        if isinstance(images, (Tensor, np.ndarray)) and images.ndim == 4:
            batch = torch.as_tensor(images)
            return self._classes(batch if batch.is_floating_point() else self.preprocess.normalized(batch.cpu()))
        if isinstance(images, Sequence) and not isinstance(images, str):
            parts = [images[start : start + self.at_once] for start in range(0, len(images), self.at_once)]
            return [prediction for part in parts for prediction in self._classes(self.preprocess.batch(part))]
        return self._classes(self.preprocess(images)[None])[0]

    @torch.inference_mode()
    def outputs(self, inputs: Tensor) -> Any:
        """The model's outputs for preprocessed inputs (N, ...), on any device."""
        tensor = next(chain(self.model.parameters(), self.model.buffers()), None)
        inputs = inputs if tensor is None else inputs.to(tensor.device)
        return self.model(inputs.float() if inputs.is_floating_point() else inputs)

    def _classes(self, inputs: Tensor) -> list[Prediction]:
        outputs = self.outputs(inputs) if self.description.outputs == "logits" else None
        if not isinstance(outputs, Tensor) or outputs.ndim != 2:
            raise ConfigurationError(
                f"{self.folder}: its model returns no class logits, so there is no class to predict. Use "
                ".outputs(inputs), or .model itself."
            )
        shares = outputs.to("cpu", torch.float64).softmax(1)
        values, numbers = shares.topk(min(TOP, shares.shape[1]), dim=1)
        return [self._prediction(*pair) for pair in zip(values.tolist(), numbers.tolist(), strict=True)]

    def _prediction(self, values: list[float], numbers: list[int]) -> Prediction:
        top = tuple((self.description.label(number), value) for number, value in zip(numbers, values, strict=True))
        return Prediction(top[0][0], top[0][1], numbers[0], top)


def load(run: str | Path, *, which: str | None = None, trust: Iterable[str] = ()) -> Trained:
    """The trained model of a run folder, also of one in object storage. The run's data is not needed.

    which: "best" or "last" weights; by default the best, if there are any. trust: packages whose code may run, for
    somebody else's run (docs/security.md). Weights are read as data.

    Raises ConfigurationError for a folder without a run or weights, for untrusted code, and for a missing class.
    """
    with at_hand(run, with_weights(which)) as folder:
        return _load(RunFolder(folder), which, trust)


def _load(folder: RunFolder, which: str | None, trust: Iterable[str]) -> Trained:
    frozen = admitted(folder, names(",".join([trust] if isinstance(trust, str) else trust), argument=f"trust={trust}"))
    which, path = chosen(folder, which)
    description = read(folder)
    with as_started(folder):
        model = bare_model(_with_copies(folder, frozen).model, _Absent(description))
    content = load_checkpoint(path)
    load_model(model, content.get("model", content), path)
    metrics: Any = (folder.read_result() or {}).get("best" if which == "best" else "metrics") or {}
    kind = (
        Trained if description.table is None else load_named("manyheads.runner.serve.rank.trained_table.TrainedTable")
    )
    return kind(
        model=model.eval(),
        preprocess=Preprocess(description),
        classes=description.classes,
        config=dict(frozen.written),
        metrics=metrics,
        description=description,
        folder=folder.path,
        which=which,
    )


def _with_copies(folder: RunFolder, run: RunConfig) -> RunConfig:
    """The config with the model's class as it was recorded, if its file has changed since."""
    model: Any = OmegaConf.create({"model": dict(run.model.section)})
    for key, target in copies(folder, {"model": run.written["model"]}).items():
        OmegaConf.update(model, key, target)
    return run.changed(**OmegaConf.to_container(model))  # type: ignore[arg-type]


class _Absent(Data):
    """Stands in for the run's data, which is not loaded."""

    def __init__(self, description: Description):
        self.num_classes, self.image_size = description.num_classes, description.image_size
        self.num_inputs = math.prod(description.shape) if description.shape and not description.is_images else None
        self.categories = [len(column["values"]) + 1 for column in (description.table or {}).get("categories", ())]
