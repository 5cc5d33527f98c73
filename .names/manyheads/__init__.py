"""manyheads: one PyTorch experiment on any parallel backend."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from manyheads.runner.serve.rank.trained import load as load

# What is looked for when it is first asked for, since `import manyheads` must not import torch.
_LAZY = {"load": "manyheads.runner.serve.rank.trained"}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
