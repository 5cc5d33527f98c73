"""A program of torch.export, for torch.export.load, AOTInductor and ExecuTorch."""

import json
from pathlib import Path

import torch
from torch import Tensor

from manyheads.runner.serve.rank.export.served import Served


def write(served: Served, examples: Tensor, file: Path, facts: dict[str, str]) -> None:
    """Trace the model with a batch of any size; ``facts`` go into its extra file metadata.json."""
    program = torch.export.export(served, (examples,), dynamic_shapes={"images": {0: torch.export.Dim("batch")}})
    metadata = {name: json.loads(value) for name, value in facts.items()}
    torch.export.save(program, file, extra_files={"metadata.json": json.dumps(metadata)})


def outputs(file: Path, served: Served, images: Tensor) -> Tensor:
    """What the file computes."""
    return torch.export.load(file).module()(images)
