"""Explains errors of the model, the loss or the data in terms of the config.

The explanation is inferred from the traceback and the variables of its frames. Nothing is tried beforehand, so a run
without a mistake pays nothing.
"""

import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from torch import Tensor, nn

from manyheads.runner.data.rank.batches import Batch
from manyheads.runner.errors import ConfigurationError, Failure, Kind
from manyheads.runner.loop.update import Update
from manyheads.runner.parallel.rank.structure import shapes
from manyheads.runner.task.rank.targets import samples_with, unlike_class
from manyheads.runner.wording import first_line, listed

LABEL = re.compile(r"Target (-?\d+) is out of bounds")
ALONE = "Expected more than 1 value per channel"
# torch's messages about tensors that do not fit, from the operations that layers and losses consist of.
UNFIT = re.compile(
    r"shapes? (cannot be multiplied|mismatch|'.*' is invalid)|to have \d+ channels|[Ee]xpected .*\dD|size mismatch|"
    r"must (match|be the same)|[Kk]ernel size can't be greater|[Oo]utput size is too small|"
    r"same (number of dimensions|dtype|shape|size)|is invalid for input|"
    r"expected (scalar type|input)|should be the same|should be defined (either )?for|batch_size .* to match|"
    r"normalized_shape|not implemented for"
)
CALLED = re.compile(r"forward\(\) (takes|missing|got)")
UNUSED = "Expected to have finished reduction in the prior iteration"  # of DistributedDataParallel
INDICES = re.compile(r"did not receive grad for rank \d+: ([\d ]+)")
SHOWN = 5  # parameters


@contextmanager
def diagnosed(update: Update, sizes: tuple[int | None, int | None]) -> Iterator[None]:
    """A context that replaces an error of a known kind by one that says what to set. ``sizes``: as in ``explained``."""
    try:
        yield
    except Exception as error:
        if (mistake := explained(error, update, sizes)) is not None:
            raise mistake from error
        raise


@contextmanager
def memory_explained(batch_size: int, accumulation: int) -> Iterator[None]:
    """A context in which an out-of-memory error also says what would take less memory.

    ``batch_size``: this rank's share of a batch; ``accumulation``: into how many micro-batches it is divided.
    """
    try:
        yield
    except Exception as error:
        if Failure.of(error).kind is Kind.OUT_OF_MEMORY:
            remedy = _less_memory(batch_size // accumulation, accumulation)
            raise type(error)(f"{str(error).rstrip('.')}. {remedy}") from error
        raise


def explained(error: Exception, update: Update, sizes: tuple[int | None, int | None]) -> Exception | None:
    """An error that names the value and the key to set; None for an unknown kind of mistake.

    ``sizes``: data.image_size and trainer.resize_from.
    """
    text, frames = first_line(error), [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    if isinstance(error, ConfigurationError):
        return None
    if "device-side assert" in text:
        return type(error)(f"{text}. A label may be out of range: trainer.device=cpu shows which. {error}")
    if UNUSED in text:
        return _unused(str(error), update)
    batch, outputs = _local(frames, "batch", Batch), _local(frames, "outputs", object)
    if batch is None:
        return None
    if (match := LABEL.search(text)) and isinstance(outputs, Tensor):
        try:  # the task itself knows best; it has checked the first batch only
            update.scores.task.check(outputs, batch.content, batch.own_ids.tolist())
        except ConfigurationError as refused:
            return refused
        label = int(match[1])
        return unlike_class(label, samples_with(batch.content[1] == label, batch.ids), outputs.shape[1])
    if not (UNFIT.search(text) or CALLED.search(text) or ALONE in text):
        return None
    if outputs is not None:
        return ConfigurationError(_loss(text, outputs, batch, update))
    names = {id(module): name for name, module in update.parallel.unwrap(update.model).named_modules()}
    entered = [
        inner_module
        for frame in frames
        if isinstance(inner_module := frame.f_locals.get("self"), nn.Module) and id(inner_module) in names
    ]
    if not (entered or CALLED.search(text)):  # raised elsewhere, such as in communication between ranks
        return None
    layer = f"{names[id(entered[-1])]} ({type(entered[-1]).__name__}): " if entered and names[id(entered[-1])] else ""
    return ConfigurationError(_model(layer + text, batch, sizes))


def _unused(text: str, update: Update) -> ConfigurationError:
    """The error for parameters without gradients, by the numbers that DistributedDataParallel gives them."""
    trained = [name for name, p in update.parallel.unwrap(update.model).named_parameters() if p.requires_grad]
    names = [trained[int(number)] for numbers in INDICES.findall(text)[:1] for number in numbers.split()]
    return ConfigurationError.at(
        "parallel.find_unused_parameters",
        False,
        f": {listed(names, SHOWN) if names else 'some parameters'} had no gradients in an update, for which "
        "DistributedDataParallel waits. Set it to true, or remove or freeze what the forward pass does not use.",
    )


def _less_memory(micro_batch: int, accumulation: int) -> str:
    halved = f"trainer.grad_accumulation={2 * accumulation} for the same updates in halves, "
    return f"Set {halved if micro_batch % 2 == 0 else ''}a smaller data.batch_size, precision=bf16 or a smaller model."


def _loss(text: str, outputs: Any, batch: Batch, update: Update) -> str:
    kind = type(getattr(update.scores.task, "criterion", update.scores.task)).__name__
    return (
        f"{kind} cannot compute the loss of the model's outputs, {shapes(outputs)}, for a batch of "
        f"{shapes(batch.content)}: {text}. Set model=, loss= or task= to ones that fit."
    )


def _model(text: str, batch: Batch, sizes: tuple[int | None, int | None]) -> str:
    if ALONE in text:
        remedy = "Set data.drop_last=true or another data.batch_size, so that no rank has a single sample."
    else:
        size, first = sizes
        remedy = "Set model= to one that takes such inputs" + (f", or data.image_size (now {size})." if size else ".")
        if first is not None:
            remedy = f"Set trainer.resize_from (now {first}) to null, or model= to one for images of any size."
    return f"the model cannot take the data's inputs, {shapes(batch.inputs)}. {text}. {remedy}"


def _local(frames: list[FrameType], name: str, kind: type) -> Any:
    """The outermost frame's variable of this name and kind; None if there is none."""
    values = (frame.f_locals.get(name) for frame in frames)
    return next((value for value in values if value is not None and isinstance(value, kind)), None)
