"""Model FLOPs utilization (MFU): the fraction of the devices' peak that a run uses for the model.

FLOPs are those of the model's own products and convolutions, forward and backward, however a run computes them:
recomputing activations does not count. Source: section 4.1 and appendix B of https://arxiv.org/abs/2204.02311.
"""

import logging
from copy import deepcopy
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from manyheads.runner.data.rank.batches import Batch
from manyheads.runner.data.rank.loader import Loader
from manyheads.runner.loop.header_rows import device_name
from manyheads.runner.machine.gpus import peak
from manyheads.runner.parallel.rank.parallel import Parallel
from manyheads.runner.parallel.rank.structure import call, map_tensors, tensors_in
from manyheads.runner.precision.rank.precision import PrecisionPolicy
from manyheads.runner.task.rank.task import Task

log = logging.getLogger(__name__)


class Utilization(NamedTuple):
    """What MFU is computed from. ``flops``: per sample in training; ``peak``: FLOP/s of all devices of the run."""

    flops: float
    peak: float

    def mfu(self, samples_per_second: float) -> float:
        """The utilization, from 0 to 1."""
        return samples_per_second * self.flops / self.peak


def utilization(
    model: nn.Module, task: Task, train: Loader, parallel: Parallel, precision: PrecisionPolicy
) -> Utilization | None:
    """The utilization that rank 0 reports; None if a peak is unknown, or if FLOPs cannot be counted.

    ``model``: whole and as the user built it, before anything has changed it.
    """
    of_one = peak(device_name(parallel.device), precision.products) if parallel.rank == 0 else None
    if of_one is None:
        return None
    try:
        flops = flops_per_sample(model, task, train.example())
    except Exception as error:  # whatever a model does that fake tensors cannot
        log.info("the model's FLOPs cannot be counted, so MFU is not reported: %s", error)
        return None
    return Utilization(flops, of_one * parallel.total_ranks * len(parallel.devices)) if flops else None


def flops_per_sample(model: nn.Module, task: Task, batch: Batch) -> float:
    """FLOPs of a forward and a backward pass over this batch, counted on tensors with shapes but no values.

    A copy of the model computes them, since a model may keep tensors of its first batch, such as rotary positions.
    """
    mode, device = FakeTensorMode(allow_non_fake_inputs=True), next(tensors_in(batch.inputs)).device

    def fake(tensor: Tensor) -> Tensor:  # all in one format, which does not change the number of FLOPs
        dtype = torch.float32 if tensor.is_floating_point() else tensor.dtype
        fake_tensor = torch.empty_strided(tensor.shape, tensor.stride(), dtype=dtype, device=device)
        return fake_tensor.requires_grad_(tensor.requires_grad)

    with mode:
        fakes = {id(tensor): fake(tensor) for tensor in (*model.parameters(), *model.buffers())}
    copied = deepcopy(model, {**fakes})  # with these tensors in place of its own
    with mode, FlopCounterMode(display=False) as counter:
        outputs = call(copied, map_tensors(fake, batch.inputs))
        loss = task.loss(outputs, map_tensors(fake, batch.content))
        torch.autograd.grad(loss, [tensor for tensor in fakes.values() if tensor.requires_grad], allow_unused=True)
    return counter.get_total_flops() / batch.count
