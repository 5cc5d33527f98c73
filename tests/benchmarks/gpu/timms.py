"""A row by the parts of timm's train.py: its loader's prefetching, optimizer and step around torchvision's model.

Source: https://github.com/huggingface/pytorch-image-models/blob/main/train.py, with --amp --amp-dtype bfloat16
--channels-last --opt sgd, and its defaults else: the loss is read every 50 updates.
"""

from collections.abc import Callable
from itertools import count

import torch
from torch import Tensor, nn

from tests.benchmarks.gpu.batches import Batches
from tests.benchmarks.gpu.case import WARM_UP, Case, Measured, Setup
from tests.benchmarks.gpu.work import network

LOG_INTERVAL = 50  # updates


def measure(case: Case, setup: Setup) -> Measured:
    """Raises ImportError without timm, else what the loop ends with."""
    from timm.data.loader import PrefetchLoader

    device = torch.device(setup.device, 0) if setup.device == "cuda" else torch.device(setup.device)
    batches = Batches(case, setup)
    warm = next(iter(PrefetchLoader([batches.pair], device=device)))
    return batches.timed(training_step(case, setup, device), warm, PrefetchLoader(batches.loader(), device=device))


def training_step(case: Case, setup: Setup, device: torch.device) -> Callable[[Tensor, Tensor], None]:
    """One update."""
    from timm.optim import create_optimizer_v2

    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    model = network(case.model, setup.image_size).to(device)
    if case.channels_last:
        model = model.to(memory_format=torch.channels_last)
    model, criterion = model.train(), nn.CrossEntropyLoss()
    optimizer = create_optimizer_v2(model, opt="sgd", lr=0.001, momentum=0.9, weight_decay=1e-4)

    numbers = count(1 - WARM_UP)

    def update(images: Tensor, targets: Tensor) -> None:
        if case.channels_last:
            images = images.contiguous(memory_format=torch.channels_last)
        with torch.autocast(device.type, torch.bfloat16, enabled=case.precision == "bf16"):
            loss = criterion(model(images), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if (number := next(numbers)) > 0 and number % LOG_INTERVAL == 0:
            loss.item()

    return update
