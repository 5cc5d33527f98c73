"""apex.amp: initialize, scale_loss, master_params, state_dict, load_state_dict."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import torch
from torch import nn

from .loss_scaler import LossScaler
from .optimizer_patch import patch
from .patched_functions import Handle

LEVELS = {
    "O0": {"cast": torch.float32, "keep_batchnorm_fp32": None, "master_weights": False, "loss_scale": 1.0},
    "O1": {"cast": None, "keep_batchnorm_fp32": None, "master_weights": None, "loss_scale": "dynamic"},
    "O2": {"cast": torch.float16, "keep_batchnorm_fp32": True, "master_weights": True, "loss_scale": "dynamic"},
    "O3": {"cast": torch.float16, "keep_batchnorm_fp32": False, "master_weights": False, "loss_scale": 1.0},
}
_amp_state = SimpleNamespace()


def initialize(models, optimizers, *, opt_level="O1", verbosity=1, **overrides):
    from apex import deprecated_warning

    deprecated_warning("amp")
    if opt_level not in LEVELS:
        raise RuntimeError(f"Unexpected optimization level {opt_level}")
    given = {key: value for key, value in overrides.items() if value is not None}
    if opt_level == "O1" and {"keep_batchnorm_fp32", "master_weights"} & set(given):
        raise RuntimeError(f"{', '.join(given)}: makes no sense with O1")
    properties = SimpleNamespace(opt_level=opt_level, **(LEVELS[opt_level] | given))
    _check_model(models)
    if hasattr(optimizers, "_amp_stash"):
        raise RuntimeError("A given optimizer should only be passed through amp.initialize once.")
    _amp_state.opt_properties = properties
    if properties.cast is not None:
        _cast(models, properties)
        optimizers.load_state_dict(optimizers.state_dict())
    patch(optimizers, master_weights=properties.master_weights)
    _amp_state.loss_scalers = [LossScaler(properties.loss_scale)]
    if opt_level == "O1":
        _amp_state.handle = Handle()
    return models, optimizers


@contextmanager
def scale_loss(loss, optimizers, *, delay_unscale=False) -> Iterator[torch.Tensor]:
    if not hasattr(_amp_state, "opt_properties"):
        raise RuntimeError("Amp has not been initialized: amp.initialize comes before `with amp.scale_loss`.")
    stash, (scaler,) = optimizers._amp_stash, _amp_state.loss_scalers
    if scaler.is_idle and not _amp_state.opt_properties.master_weights:
        yield loss.float()
        return
    if not delay_unscale and not stash.has_scaled_gradients:
        stash.set_gradients_aside()
    yield loss.float() * scaler.scale
    if delay_unscale:
        stash.has_scaled_gradients = True
        return
    if getattr(optimizers, "_handles", None):
        raise RuntimeError("Horovod's optimizer.synchronize() belongs inside of `with amp.scale_loss`.")
    overflow = stash.unscale(scaler.scale)
    stash.has_scaled_gradients = False
    stash.skips_next_step = scaler.update(overflow=overflow)


def master_params(optimizer) -> Iterator[nn.Parameter]:
    for group in optimizer.param_groups:
        yield from group["params"]


def state_dict() -> dict:
    return {
        f"loss_scaler{index}": {"loss_scale": scaler.scale, "unskipped": scaler.unskipped}
        for index, scaler in enumerate(_amp_state.loss_scalers)
    }


def load_state_dict(state: dict) -> None:
    if wrong := [key for key in state if "loss_scaler" not in key]:
        raise RuntimeError(f"Unexpected key(s) in state_dict: {wrong}")
    for scaler, values in zip(_amp_state.loss_scalers, state.values(), strict=True):
        scaler.scale, scaler.unskipped = values["loss_scale"], values["unskipped"]


def _check_model(model) -> None:
    from apex.parallel import DistributedDataParallel

    if isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel, DistributedDataParallel)):
        raise RuntimeError(f"Incoming model is an instance of {type(model)}: wrap it AFTER amp.initialize.")
    for name, value in [*model.named_parameters(), *model.named_buffers()]:
        if value.is_floating_point() and value.dtype is not torch.float32:
            raise RuntimeError(f"Found param {name} with type {value.type()}, expected torch.cuda.FloatTensor.")


def _cast(model, properties) -> None:
    for module in model.modules():
        is_kept = properties.keep_batchnorm_fp32 and isinstance(module, nn.modules.batchnorm._BatchNorm)
        if not is_kept:
            module._apply(lambda t: t.to(properties.cast) if t.is_floating_point() else t, recurse=False)
    forward = model.forward
    model.forward = lambda images: forward(images.to(properties.cast)).float()
    model.register_state_dict_post_hook(
        lambda _, state, *__: state.update((k, v.float()) for k, v in state.items() if v.dtype is torch.float16)
    )
