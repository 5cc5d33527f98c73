"""A row by the parts of timm's train.py: its loader's prefetching, optimizer and step around torchvision's model.

Source: https://github.com/huggingface/pytorch-image-models/blob/main/train.py, with --amp --amp-dtype bfloat16
--channels-last --opt sgd, and its defaults else: the loss is read every 50 updates.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from tests.benchmarks.gpu.by_hand import Whole
from tests.benchmarks.gpu.case import WARM_UP, Case, Measured, Setup
from tests.benchmarks.gpu.device import Stopwatch, peak_bytes
from tests.benchmarks.gpu.ready import Ready
from tests.benchmarks.gpu.work import network

LOG_INTERVAL = 50  # updates


def measure(case: Case, setup: Setup) -> Measured:
    """Raises ImportError without timm, else what the loop ends with."""
    from timm.data.loader import PrefetchLoader

    device = torch.device(setup.device, 0) if setup.device == "cuda" else torch.device(setup.device)
    first, last = setup.span(case)
    batches = Ready(samples=setup.batch_size, batch=setup.batch_size, size=setup.image_size)
    loader = DataLoader(
        Whole(batches, last + 1),
        batch_size=None,
        num_workers=setup.workers(case),
        pin_memory=setup.device == "cuda",
        multiprocessing_context="fork",
    )
    update = training_step(case, setup, device)
    images, targets = next(iter(PrefetchLoader([(batches.images, batches.targets)], device=device)))
    for _ in range(WARM_UP):
        update(images, targets)
    watch = Stopwatch(setup.device, first=first, last=last)
    for step, pair in enumerate(PrefetchLoader(loader, device=device), 1):
        loss = update(*pair)
        if step % LOG_INTERVAL == 0:
            loss.item()
        watch(step)
        if step == last:
            break
    return Measured.of(setup, watch.seconds_per_step, peak_bytes=peak_bytes(setup.device))


def training_step(case: Case, setup: Setup, device: torch.device) -> Callable[[Tensor, Tensor], Tensor]:
    """One update, which returns the loss."""
    from timm.optim import create_optimizer_v2

    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    model = network(case.model, setup.image_size).to(device)
    if case.channels_last:
        model = model.to(memory_format=torch.channels_last)
    model, criterion = model.train(), nn.CrossEntropyLoss()
    optimizer = create_optimizer_v2(model, opt="sgd", lr=0.001, momentum=0.9, weight_decay=1e-4)

    def update(images: Tensor, targets: Tensor) -> Tensor:
        if case.channels_last:
            images = images.contiguous(memory_format=torch.channels_last)
        with torch.autocast(device.type, torch.bfloat16, enabled=case.precision == "bf16"):
            loss = criterion(model(images), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return update
