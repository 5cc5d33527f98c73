"""A trained model as other programs call it, images in 0..1 to outputs, written and read in each format."""

import copy
import json
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor, nn

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.locate import load
from manyheads.runner.serve.rank.trained import Trained

EXAMPLES = 2  # samples that the model is traced with


@contextmanager
def without(message: str) -> Iterator[None]:
    """A context in which torch does not warn of what it does itself. ``message``: how that warning begins."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message)
        yield


class Served(nn.Module):
    """Takes images (N, C, H, W) float32 in 0..1, and normalizes them as the run did.

    If the data set returns floats without declaring their mean and std, inputs are what it returns, and ``range`` is
    None. ``shape``: of one input; None if it is not one tensor of numbers, as of token models, which only formats
    of ``weights_only`` can hold. Raises ConfigurationError for others.
    """

    input_mean: Tensor  # plain "mean" is what ONNX calls an operation's output in torch 2.6
    input_std: Tensor

    def __init__(self, trained: Trained, *, weights_only: bool = False):
        super().__init__()
        about = trained.description
        shape = None if about.dtype is None else about.shape
        if shape is None and not weights_only:
            raise ConfigurationError(
                f"{trained.folder}: its model takes more than one tensor, or tensors of unknown shape. Set --format "
                "safetensors, which holds the weights alone, or export it yourself: manyheads.load(...).model."
            )
        normalizes = about.mean is not None and about.std is not None and about.is_images
        mean, std = (about.mean, about.std) if normalizes else ((0.0,), (1.0,))
        self.model, self.shape = trained.model.cpu(), shape
        if about.table is not None and not weights_only:
            self.model, self.shape = load("manyheads.runner.serve.rank.trained_table.from_values")(trained)
        self.range = [0, 1] if normalizes else None
        side = (-1, 1, 1) if about.is_images else (1,) * len(shape or ())
        self.register_buffer("input_mean", torch.tensor(mean, dtype=torch.float32).view(side))
        self.register_buffer("input_std", torch.tensor(std, dtype=torch.float32).view(side))

    def forward(self, images: Tensor) -> Tensor:
        return self.model((images - self.input_mean) / self.input_std)

    def examples(self, count: int) -> Tensor:
        """Random inputs, the same ones each time: (count, ...) float32 in 0..1."""
        assert self.shape is not None
        return torch.rand(count, *self.shape, generator=torch.Generator().manual_seed(count))


class Writer:
    """A format of exported models. ``weights_only``: it holds no computation, so inputs need not be known."""

    weights_only = False

    def write(self, served: Served, file: Path, facts: dict[str, str]) -> None:
        """Write the model. ``facts``: metadata, each value as JSON."""
        raise NotImplementedError

    def outputs(self, file: Path, served: Served, images: Tensor) -> Tensor:
        """The file's outputs for these inputs. ``served``: the model that was written."""
        return self.again(file, served)(images)

    def again(self, file: Path, served: Served) -> Served:
        """The model's code with nothing but the file's weights; only of formats with ``weights_only``."""
        raise NotImplementedError


class TorchExport(Writer):
    """A program of torch.export, for torch.export.load, AOTInductor and ExecuTorch."""

    def write(self, served: Served, file: Path, facts: dict[str, str]) -> None:
        """For a batch of any size; ``facts`` go into its extra file metadata.json."""
        program = torch.export.export(
            served, (served.examples(EXAMPLES),), dynamic_shapes={"images": {0: torch.export.Dim("batch")}}
        )
        metadata = {name: json.loads(value) for name, value in facts.items()}
        torch.export.save(program, file, extra_files={"metadata.json": json.dumps(metadata)})

    def outputs(self, file: Path, served: Served, images: Tensor) -> Tensor:
        with without("The given buffer is not writable"):  # torch 2.11 reads the weights into one
            return torch.export.load(file).module()(images)


class ONNX(Writer):
    """An ONNX model, for ONNX Runtime, TensorRT, OpenVINO and others."""

    def write(self, served: Served, file: Path, facts: dict[str, str]) -> None:
        """For a batch of any size; ``facts`` become its metadata, one property each."""
        import onnx

        with without(r"`isinstance\(treespec, LeafSpec\)` is deprecated"):  # torch 2.11 copies such an object
            program = torch.onnx.export(
                served,
                (served.examples(EXAMPLES),),
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
            os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # it writes to .ses in TMPDIR, which others may have put there
            import onnxruntime

            session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
        else:
            from onnx.reference import ReferenceEvaluator

            session = ReferenceEvaluator(str(file))
        return torch.from_numpy(session.run(["outputs"], {"images": images.numpy()})[0])


class Safetensors(Writer):
    """The weights alone, as safetensors, which anything can read without running code."""

    weights_only = True

    def write(self, served: Served, file: Path, facts: dict[str, str]) -> None:
        """Under the model's own names, of which one is kept for tied weights; ``facts`` become the file's metadata."""
        from safetensors.torch import save_model

        save_model(served.model, str(file), metadata={**facts, "format": "pt"}, force_contiguous=True)

    def again(self, file: Path, served: Served) -> Served:
        from safetensors.torch import load_model

        again = copy.deepcopy(served)
        for tensor in again.model.state_dict().values():
            tensor.zero_()
        load_model(again.model, file)
        return again


WRITERS: dict[str, Writer] = {"torch_export": TorchExport(), "onnx": ONNX(), "safetensors": Safetensors()}
