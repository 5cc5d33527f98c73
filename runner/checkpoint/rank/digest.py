"""Numbers for comparing two sets of weights."""

import hashlib

import torch
from torch import Tensor


def weights_sha256(weights: dict[str, Tensor]) -> str:
    """Digest over name, dtype, shape and bytes in name order: equal if and only if the weights are."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        tensor = weights[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def largest_entry(tensor: Tensor) -> float:
    """The largest absolute value; inf or NaN where one is that, 0 of an empty tensor."""
    return float(tensor.to(torch.float64).abs().max()) if tensor.numel() else 0.0
