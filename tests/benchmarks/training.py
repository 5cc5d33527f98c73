"""What averages, mixed samples, groups, SAM and optimizers of this project's cost, beside the same written by hand.

Of optimizers the other one is timm's.
"""

import copy
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from tests.benchmarks.features import BY_HAND, OURS, _seconds
from tests.benchmarks.measure import Comparison, compare
from tests.in_process import config, opened

STEPS = 40
SMALL = (
    *("data=synthetic", "data.image_size=32", "data.batch_size=64", f"data.train_samples={64 * STEPS}"),
    *("model.width=8", "trainer.epochs=1", "trainer.evaluate_every=0", "checkpoint.every=0", "logger=[]"),
    *("launcher.threads_per_rank=1", "trainer.device=cpu", "scheduler=constant", "optimizer.lr=0.01"),
)
Batches = Iterator[tuple[Tensor, Tensor]]
Loop = Callable[[nn.Module, Batches], None]


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9, weight_decay=5e-4, fused=True)


def timm_s(name: str, parameters: Any) -> torch.optim.Optimizer:
    import timm.optim

    return getattr(timm.optim, name)(parameters, lr=0.01)


def plain(
    net: nn.Module,
    batches: Batches,
    *,
    make: Callable[[Any], torch.optim.Optimizer] = sgd,
    after: Callable[[], Any] = lambda: None,
    clip: float | None = None,
) -> None:
    optimizer = make(net.parameters())
    for inputs, targets in batches:
        optimizer.zero_grad()
        cross_entropy(net(inputs), targets).backward()
        if clip is not None:
            nn.utils.clip_grad_value_(net.parameters(), clip)
        optimizer.step()
        after()


def averaged(net: nn.Module, batches: Batches) -> None:
    mean = torch.optim.swa_utils.AveragedModel(net, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.999))
    plain(net, batches, after=lambda: mean.update_parameters(net))


def mixed(net: nn.Module, batches: Batches, *, cuts: bool = False) -> None:
    optimizer, share = sgd(net.parameters()), torch.distributions.Beta(0.2, 0.2)
    for inputs, targets in batches:
        optimizer.zero_grad()
        own, other = float(share.sample()), inputs.flip(0)
        if cuts:
            side = int(inputs.shape[2] * (1 - own) ** 0.5)
            blended = inputs.clone()
            blended[:, :, :side, :side] = other[:, :, :side, :side]
        else:
            blended = inputs * own + other * (1 - own)
        outputs = net(blended)
        loss = cross_entropy(outputs, targets) * own + cross_entropy(outputs, targets.flip(0)) * (1 - own)
        loss.backward()
        optimizer.step()


def grouped(net: nn.Module, batches: Batches) -> None:
    biases = [parameter for name, parameter in net.named_parameters() if name.endswith("bias")]
    others = [parameter for name, parameter in net.named_parameters() if not name.endswith("bias")]
    groups = [{"params": others}, {"params": biases, "weight_decay": 0.0}]
    plain(net, batches, make=lambda _: sgd(groups))


def uphill(net: nn.Module, batches: Batches) -> None:
    optimizer = sgd(net.parameters())
    for inputs, targets in batches:
        cross_entropy(net(inputs), targets).backward()
        gradients = [parameter.grad for parameter in net.parameters() if parameter.grad is not None]
        norm = torch.stack([gradient.norm() for gradient in gradients]).norm()
        steps = [gradient * (0.05 / norm) for gradient in gradients]
        with torch.no_grad():
            for parameter, step in zip(net.parameters(), steps, strict=True):
                parameter.add_(step)
        optimizer.zero_grad()
        cross_entropy(net(inputs), targets).backward()
        with torch.no_grad():
            for parameter, step in zip(net.parameters(), steps, strict=True):
                parameter.sub_(step)
        optimizer.step()
        optimizer.zero_grad()


ROWS: dict[str, tuple[tuple[str, ...], Loop]] = {
    "nothing of it": ((), plain),
    "trainer.ema_decay=0.999": (("trainer.ema_decay=0.999",), averaged),
    "trainer.mixup_alpha=0.2": (("trainer.mixup_alpha=0.2",), mixed),
    "trainer.cutmix_alpha=0.2": (("trainer.cutmix_alpha=0.2",), partial(mixed, cuts=True)),
    "parameters.bias_weight_decay=0": (("parameters.bias_weight_decay=0",), grouped),
    "trainer.clip_value=0.1": (("trainer.clip_value=0.1",), partial(plain, clip=0.1)),
    "trainer.sam_rho=0.05": (("trainer.sam_rho=0.05",), uphill),
    "optimizer=lamb": (("optimizer=lamb",), partial(plain, make=partial(timm_s, "Lamb"))),
    "optimizer=lion": (("optimizer=lion",), partial(plain, make=partial(timm_s, "Lion"))),
    "optimizer=muon": (("optimizer=muon",), partial(plain, make=partial(timm_s, "Muon"))),
}


def of(name: str) -> Callable[[], Comparison]:
    """What measures the row of that name."""

    def measure(rounds: int = 7) -> Comparison:
        return measured(name, rounds)

    measure.__module__, measure.__name__ = __name__, name
    return measure


def measured(name: str, rounds: int) -> Comparison:
    """Steps of a small CNN on 32 pixels."""
    overrides, loop = ROWS[name]
    with tempfile.TemporaryDirectory() as folder:
        candidates: dict[str, Callable[[], float]] = {
            BY_HAND: lambda: _by_hand(Path(tempfile.mkdtemp(dir=folder)), loop),
            OURS: lambda: _ours(Path(tempfile.mkdtemp(dir=folder)), *overrides),
        }
        return compare(f"{STEPS} steps of a small CNN, with {name}", candidates, rounds=rounds)


def _ours(folder: Path, *overrides: str) -> float:
    with opened(folder, config(*SMALL, *overrides)) as trainer:
        trainer.update.prime(trainer.train.example, warm_up=True)
        return _seconds(lambda: trainer.fit(lambda **_: None, due_after_step=lambda _: False))


def _by_hand(folder: Path, loop: Loop) -> float:
    with opened(folder, config(*SMALL)) as trainer:
        net = copy.deepcopy(trainer.update.model).train()
        trainer.update.prime(trainer.train.example, warm_up=True)
        batches = ((batch.inputs, batch.content[1]) for batch in trainer.train.epoch(0))
        return _seconds(lambda: loop(net, batches))
