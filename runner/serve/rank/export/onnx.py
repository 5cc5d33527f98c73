"""An ONNX model, for ONNX Runtime, TensorRT, OpenVINO and others."""

from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor

from manyheads.runner.serve.rank.export.served import Served

INPUT, OUTPUT = "images", "outputs"


def write(served: Served, examples: Tensor, file: Path, facts: dict[str, str]) -> None:
    """Trace the model with a batch of any size; ``facts`` become its metadata, one property each."""
    import onnx

    program = torch.onnx.export(
        served,
        (examples,),
        dynamo=True,
        dynamic_shapes={"images": {0: torch.export.Dim("batch")}},
        input_names=[INPUT],
        output_names=[OUTPUT],
        verbose=False,
    )
    assert program is not None
    model = program.model_proto
    onnx.helper.set_model_props(model, facts)
    onnx.save(model, file)


def outputs(file: Path, served: Served, images: Tensor) -> Tensor:
    """What the file computes, by ONNX Runtime where it is installed, else by ONNX's reference."""
    if find_spec("onnxruntime"):
        import onnxruntime

        session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    else:
        from onnx.reference import ReferenceEvaluator

        session = ReferenceEvaluator(str(file))
    return torch.from_numpy(session.run([OUTPUT], {INPUT: images.numpy()})[0])
