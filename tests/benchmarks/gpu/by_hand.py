"""A row by a hand-written loop with the very settings of ours: what ours takes longer, the project itself costs.

torchvision's model, batches from loader processes that are pinned, sent on a stream of their own and normalized on the
device, autocast, fused SGD, cuDNN's search for algorithms; no metrics, no log, no look at the loss.
"""

from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor, nn

from tests.benchmarks.gpu.batches import Batches, Pair
from tests.benchmarks.gpu.case import Case, Measured, Setup
from tests.benchmarks.gpu.work import network


def measure(case: Case, setup: Setup) -> Measured:
    """Raises what the loop ends with."""
    device = torch.device(setup.device, 0) if setup.device == "cuda" else torch.device(setup.device)
    batches = Batches(case, setup)
    enter, update = input_transform(case, device), training_step(case, setup, device)
    return batches.timed(update, enter(batches.pair), ahead(batches.loader(), enter, device))


def input_transform(case: Case, device: torch.device) -> Callable[[Pair], Pair]:
    """To the device, to -1..1, in the model's memory format."""
    scale, shift = torch.tensor(2 / 255, device=device), torch.tensor(-1.0, device=device)

    def enter(pair: Pair) -> Pair:
        images, targets = (tensor.to(device, non_blocking=True) for tensor in pair)
        if case.channels_last:
            images = images.contiguous(memory_format=torch.channels_last)
        return images.float().mul_(scale).add_(shift), targets

    return enter


def ahead(loader: Iterable[Pair], enter: Callable[[Pair], Pair], device: torch.device) -> Iterator[Pair]:
    """Each batch is sent while the device is busy with the one before it."""
    if device.type != "cuda":
        yield from map(enter, loader)
        return
    stream, coming = torch.cuda.Stream(device), None
    for pair in loader:
        arriving = coming
        with torch.cuda.stream(stream):
            coming = enter(pair)
        if arriving is not None:
            yield arrived(arriving, stream)
    if coming is not None:
        yield arrived(coming, stream)


def arrived(pair: Pair, stream: torch.cuda.Stream) -> Pair:
    current = torch.cuda.current_stream()
    current.wait_stream(stream)
    for tensor in pair:
        tensor.record_stream(current)
    return pair


def training_step(case: Case, setup: Setup, device: torch.device) -> Callable[[Tensor, Tensor], None]:
    """One update."""
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    model = network(case.model, setup.image_size)
    if case.channels_last:
        model = model.to(memory_format=torch.channels_last)
    model, criterion = model.to(device).train(), nn.CrossEntropyLoss()
    if case.compile:
        model.compile()
    optimizer = torch.optim.SGD(model.parameters(), 0.001, momentum=0.9, weight_decay=1e-4, fused=True)

    def update(images: Tensor, targets: Tensor) -> None:
        with torch.autocast(device.type, torch.bfloat16, enabled=case.precision == "bf16"):
            loss = criterion(model(images), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return update
