"""Two things that torch does otherwise over NCCL than over Gloo, and that a recorded rank does as over NCCL."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d


@contextmanager
def batches(context: Callable[[], AbstractContextManager]) -> Iterator[None]:
    """Enter ``context`` around each batch of messages, which reach Gloo one by one."""
    plain = distributed_c10d.batch_isend_irecv

    def batched(messages: Any) -> Any:
        with context():
            return plain(messages)

    for module in (dist, distributed_c10d):
        module.batch_isend_irecv = batched  # type: ignore[attr-defined]
    try:
        yield
    finally:
        for module in (dist, distributed_c10d):
            module.batch_isend_irecv = plain  # type: ignore[attr-defined]


@contextmanager
def callbacks_at_once() -> Iterator[None]:
    """Run what follows a call, such as PowerSGD's next one, in the thread that made it, as with NCCL.

    Gloo runs it in threads of its own, whose calls no dispatch mode sees, in an order that differs between ranks.
    """
    plain = torch._C.Future.then

    def then(future: Any, callback: Any) -> Any:
        future.wait()
        return plain(future, callback)

    torch._C.Future.then = then  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch._C.Future.then = plain  # type: ignore[method-assign]
