"""A row by the loop of every tutorial: torchvision's transforms over PIL, floats, and a look at the loss each step.

Source: https://github.com/pytorch/examples/blob/main/imagenet/main.py, and for amp
https://docs.pytorch.org/tutorials/recipes/recipes/amp_recipe.html. torch's settings are left as they are.
"""

from collections.abc import Callable
from itertools import islice

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, default_collate
from torchvision import transforms
from torchvision.datasets import ImageFolder

from tests.benchmarks.gpu.case import NO_MODEL, PHOTOS, WARM_UP, Case, Measured, Setup
from tests.benchmarks.gpu.device import Stopwatch
from tests.benchmarks.gpu.ready import ReadyFloats
from tests.benchmarks.gpu.work import network


def dataset(case: Case, setup: Setup) -> Dataset:
    if case.data != PHOTOS:
        return ReadyFloats(samples=setup.longest, size=setup.image_size)
    view = transforms.Compose(
        [
            transforms.RandomResizedCrop(setup.image_size),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ]
    )
    return ImageFolder(setup.photos / "train", view)


def measure(case: Case, setup: Setup) -> Measured:
    """Raises what the loop ends with."""
    samples, device = dataset(case, setup), setup.device
    loader = DataLoader(
        samples,
        batch_size=setup.batch_size,
        shuffle=True,
        num_workers=setup.cores,
        pin_memory=device == "cuda",
        drop_last=True,
        multiprocessing_context="fork",
    )
    is_loading = case.model == NO_MODEL
    update = copying(device) if is_loading else training_step(case, setup)
    batch = default_collate([samples[index] for index in range(setup.batch_size)])
    for _ in range(WARM_UP):
        update(*batch)
    watch = Stopwatch(case, setup)
    for step, (images, targets) in enumerate(islice(loader, watch.end), 1):
        update(images, targets)
        watch(step)
    return watch.measured()


def copying(device: str) -> Callable[[Tensor, Tensor], object]:
    """To the device, and no more."""
    return lambda *batch: [tensor.to(device, non_blocking=True) for tensor in batch]


def training_step(case: Case, setup: Setup) -> Callable[[Tensor, Tensor], float]:
    """One update; returns the loss."""
    device, is_amp = setup.device, case.precision == "amp"
    model = network(case.model, setup.image_size).to(device).train()
    criterion = nn.CrossEntropyLoss().to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.001, momentum=0.9, weight_decay=1e-4)
    scaler = torch.amp.GradScaler(device, enabled=is_amp and device == "cuda")

    def update(images: Tensor, targets: Tensor) -> float:
        images, targets = images.to(device, non_blocking=True), targets.to(device, non_blocking=True)
        with torch.autocast(device, enabled=is_amp):
            loss = criterion(model(images), targets)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.item()

    return update
