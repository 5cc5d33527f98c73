"""apex.parallel: DistributedDataParallel and convert_syncbn_model."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm


class DistributedDataParallel(nn.Module):
    """Averages gradients at the end of the backward pass, unless allreduce is disabled meanwhile."""

    def __init__(
        self,
        module,
        message_size=10000000,
        delay_allreduce=False,
        allreduce_always_fp32=False,
        gradient_predivide_factor=1.0,
    ):
        from apex import deprecated_warning

        super().__init__()
        deprecated_warning("parallel.DistributedDataParallel")
        self.module, self.delay_allreduce, self.message_size = module, delay_allreduce, message_size
        self.always_fp32, self.predivide = allreduce_always_fp32, gradient_predivide_factor
        self._disable_allreduce, self._arrived, self._bucketed = False, set(), None
        for parameter in module.parameters():
            dist.broadcast(parameter.data, 0)
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self._arrive)

    def enable_allreduce(self):
        self._disable_allreduce = False

    def disable_allreduce(self):
        self._disable_allreduce = True

    def forward(self, *inputs):
        result = self.module(*inputs)
        if not self._disable_allreduce:
            self._arrived = set()
        return result

    def _arrive(self, parameter) -> None:
        if self._disable_allreduce:
            return
        if parameter in self._arrived:
            raise RuntimeError("The backward pass is attempting to replace an already-filled bucket slot.")
        if not self._arrived:
            torch.autograd.Variable._execution_engine.queue_callback(self._exchange)
        self._arrived.add(parameter)

    def _exchange(self) -> None:
        self._bucketed = self._bucketed or self._arrived
        if not self.delay_allreduce and self._arrived != self._bucketed:
            raise RuntimeError("Some param buckets were not allreduced.")
        gradients = [p.grad for p in self.module.parameters() if p.grad is not None]
        for dtype in {gradient.dtype for gradient in gradients}:
            bucket = [gradient for gradient in gradients if gradient.dtype is dtype]
            flat = torch.cat([gradient.flatten() for gradient in bucket])
            flat = (flat.float() if self.always_fp32 else flat) / self.predivide
            dist.all_reduce(flat)
            flat *= self.predivide / dist.get_world_size()
            for gradient, part in zip(bucket, flat.split([g.numel() for g in bucket]), strict=True):
                gradient.copy_(part.view_as(gradient))


class SyncBatchNorm(_BatchNorm):
    """Here without its exchange of statistics."""

    def _check_input_dim(self, input) -> None: ...


def convert_syncbn_model(module):
    from apex import deprecated_warning

    deprecated_warning("parallel.convert_syncbn_model")
    for name, child in module.named_children():
        if isinstance(child, _BatchNorm):
            synced = SyncBatchNorm(child.num_features, child.eps, child.momentum).to(child.weight)
            synced.load_state_dict(child.state_dict())
            setattr(module, name, synced)
        else:
            convert_syncbn_model(child)
    return module
