"""A trained model as other programs call it, images in 0..1 to outputs, written and read in each format."""

import copy
import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor, nn

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.serve.rank.trained import Trained


@contextmanager
def without(message: str) -> Iterator[None]:
    """A context in which torch does not warn of what it does itself. ``message``: how that warning begins."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message)
        yield


class Served(nn.Module):
    """Takes images (N, C, H, W) float32 in 0..1, and normalizes them as the run did.

    If the data set returns floats without declaring their mean and std, inputs are what it returns, and ``range`` is
    None. ``shape``: of one input. Raises ConfigurationError for a model whose input is not one tensor of numbers.
    """

    input_mean: Tensor  # plain "mean" is what ONNX calls an operation's output in torch 2.6
    input_std: Tensor

    def __init__(self, trained: Trained):
        super().__init__()
        about = trained.description
        if about.shape is None or about.dtype is None:
            raise ConfigurationError(
                f"{trained.folder}: its model takes more than one tensor, or tensors of unknown shape. Export it "
                "yourself: manyheads.load(...).model."
            )
        known = about.mean is not None and about.std is not None and about.is_images
        mean, std = (about.mean, about.std) if known else ((0.0,), (1.0,))
        self.model, self.shape = trained.model.cpu(), about.shape
        self.range = [0, 1] if known else None
        side = (-1, 1, 1) if about.is_images else (1,) * len(about.shape)
        self.register_buffer("input_mean", torch.tensor(mean, dtype=torch.float32).view(side))
        self.register_buffer("input_std", torch.tensor(std, dtype=torch.float32).view(side))

    def forward(self, images: Tensor) -> Tensor:
        return self.model((images - self.input_mean) / self.input_std)

    def examples(self, count: int) -> Tensor:
        """Random inputs, the same ones each time: (count, ...) float32 in 0..1."""
        return torch.rand(count, *self.shape, generator=torch.Generator().manual_seed(count))


class Writer(Protocol):
    """A format of exported models."""

    def write(self, served: Served, examples: Tensor, file: Path, facts: dict[str, str]) -> None:
        """Write the model. ``examples``: inputs to trace it with; ``facts``: metadata, each value as JSON."""

    def outputs(self, file: Path, served: Served, images: Tensor) -> Tensor:
        """The file's outputs for these inputs. ``served``: the model that was written."""


class TorchExport:
    """A program of torch.export, for torch.export.load, AOTInductor and ExecuTorch."""

    def write(self, served: Served, examples: Tensor, file: Path, facts: dict[str, str]) -> None:
        """For a batch of any size; ``facts`` go into its extra file metadata.json."""
        program = torch.export.export(served, (examples,), dynamic_shapes={"images": {0: torch.export.Dim("batch")}})
        metadata = {name: json.loads(value) for name, value in facts.items()}
        torch.export.save(program, file, extra_files={"metadata.json": json.dumps(metadata)})

    def outputs(self, file: Path, served: Served, images: Tensor) -> Tensor:
        with without("The given buffer is not writable"):  # torch 2.11 reads the weights into one
            return torch.export.load(file).module()(images)


class ONNX:
    """An ONNX model, for ONNX Runtime, TensorRT, OpenVINO and others."""

    def write(self, served: Served, examples: Tensor, file: Path, facts: dict[str, str]) -> None:
        """For a batch of any size; ``facts`` become its metadata, one property each."""
        import onnx

        with without(r"`isinstance\(treespec, LeafSpec\)` is deprecated"):  # torch 2.11 copies such an object
            program = torch.onnx.export(
                served,
                (examples,),
                dynamo=True,
                dynamic_shapes={"images": {0: torch.export.Dim("batch")}},
                input_names=["images"],
                output_names=["outputs"],
                verbose=False,
            )
        assert program is not None
        model = program.model_proto
        onnx.helper.set_model_props(model, facts)
        onnx.save(model, file)

    def outputs(self, file: Path, served: Served, images: Tensor) -> Tensor:
        """The outputs by ONNX Runtime if it is installed, else by ONNX's reference."""
        if find_spec("onnxruntime"):
            import onnxruntime

            session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
        else:
            from onnx.reference import ReferenceEvaluator

            session = ReferenceEvaluator(str(file))
        return torch.from_numpy(session.run(["outputs"], {"images": images.numpy()})[0])


class Safetensors:
    """The weights alone, as safetensors, which anything can read without running code."""

    def write(self, served: Served, examples: Tensor, file: Path, facts: dict[str, str]) -> None:
        """Under the model's own names, of which one is kept for tied weights; ``facts`` become the file's metadata."""
        from safetensors.torch import save_model

        save_model(served.model, str(file), metadata={**facts, "format": "pt"}, force_contiguous=True)

    def outputs(self, file: Path, served: Served, images: Tensor) -> Tensor:
        """The outputs of the model's code, with nothing but the file's weights."""
        from safetensors.torch import load_model

        again = copy.deepcopy(served)
        for tensor in again.model.state_dict().values():
            tensor.zero_()
        load_model(again.model, file)
        return again(images)


WRITERS: dict[str, Writer] = {"torch_export": TorchExport(), "onnx": ONNX(), "safetensors": Safetensors()}
