"""Copies batches to the GPU while it computes on the ones before them."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache

import torch

from manyheads.runner.data.rank.batches import Batch
from manyheads.runner.parallel.rank.structure import tensors_in


def prefetch(batches: Iterator[Batch], enter: Callable[[Batch], Batch], device: torch.device) -> Iterator[Batch]:
    """Call ``enter`` on each batch, on a side stream, before the preceding batch is yielded.

    The result may be used on the stream that is current when it is yielded.

    Source: https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-streams.
    """
    stream = side_stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))  # it created the loader's constants

    def start(batch: Batch) -> tuple[Batch, torch.cuda.Event]:
        with torch.cuda.stream(stream):
            return enter(batch), stream.record_event()

    coming: tuple[Batch, torch.cuda.Event] | None = None
    for batch in batches:
        arriving, coming = coming, start(batch)
        if arriving is not None:
            yield _arrived(*arriving, torch.cuda.current_stream(device))
    if coming is not None:
        yield _arrived(*coming, torch.cuda.current_stream(device))


def pinned(batches: Iterator[Batch], device: torch.device) -> Iterator[Batch]:
    """Copy batches to pinned memory, in a thread; this frees the loader processes' memory for further batches."""
    threads = torch.get_num_threads()
    with ThreadPoolExecutor(1) as thread:
        thread.submit(_copy_alone, device).result()
        torch.set_num_threads(threads)  # for threads that start later
        coming: Future[Batch] | None = None
        for batch in batches:
            arriving, coming = coming, thread.submit(batch.pin_memory)
            if arriving is not None:
                yield arriving.result()
        if coming is not None:
            yield coming.result()


def _copy_alone(device: torch.device) -> None:
    """Let this thread copy by itself: helpers would be no faster, and keep all cores busy waiting for the next copy.

    Source: https://github.com/pytorch/pytorch/issues/25010.
    """
    torch.get_num_threads()  # a thread's first call, of any operation too, takes the number that was set last
    torch.set_num_threads(1)
    torch.cuda.set_device(device)


@cache
def side_stream(device: torch.device) -> torch.cuda.Stream:
    """One side stream for all loaders, since memory freed on one stream is not reused on another."""
    return torch.cuda.Stream(device)


def _arrived(batch: Batch, event: torch.cuda.Event, current: torch.cuda.Stream) -> Batch:
    """The batch for the current stream: its memory is not reused before that stream is done with it."""
    current.wait_event(event)
    for tensor in tensors_in((batch.content, batch.inputs, batch.partners)):
        tensor.record_stream(current)
    return batch
