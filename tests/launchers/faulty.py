"""Models that fail on purpose, once, on one rank at one step."""

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from manyheads.runner.errors import ConfigurationError, Unavailable
from manyheads.runner.model.rank.small_cnn import SmallCNN

SAVE, HALF_A_PART = torch.save, b"half of a part"


class Faulty(SmallCNN):
    """small_cnn that fails in the forward pass of training step ``step`` on rank ``rank``, as ``how`` says.

    ``once``: a file that remembers that it has failed, so that a resumed run goes through; ``evaluating``: the step is
    one of an evaluation.
    """

    def __init__(
        self,
        *,
        num_classes: int,
        how: str,
        rank: int = 0,
        step: int = 1,
        once: str | None = None,
        width: int = 8,
        evaluating: bool = False,
    ):
        super().__init__(num_classes=num_classes, width=width)
        self._how, self._step, self._once, self._evaluating = how, step, once, evaluating
        self._here = int(os.environ.get("RANK", 0)) == rank and not (once and Path(once).exists())
        self._steps = 0

    def forward(self, images: Tensor) -> Tensor:
        is_update = self.training and torch.is_grad_enabled()
        if self._here and (not self.training if self._evaluating else is_update):
            self._steps += 1
            if self._steps == self._step:
                if self._once:
                    Path(self._once).touch()
                fail(self._how)
        return super().forward(images)


def fail(how: str) -> None:
    if how == "raise":
        raise ArithmeticError("made to fail")
    if how == "refuse":
        raise ConfigurationError("made to be refused")
    if how == "lack":
        raise Unavailable("made to lack something")
    if how == "sys.exit":
        sys.exit(7)
    if how == "sys.exit with a message":
        sys.exit("no more data")
    if how == "os._exit":
        os._exit(9)
    if how == "leave":
        os._exit(0)
    if how == "allocate":
        torch.empty(2**46)  # torch's allocator refuses
    if how == "lose the device":  # as torch words it
        raise RuntimeError("CUDA error: device is lost")
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    if how == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
    if how == "sleep":
        time.sleep(3600)
    if how.startswith("fill "):
        fill(Path(how.removeprefix("fill ")))
        raise ArithmeticError("made to fail")
    if how.startswith("lock "):
        lock(Path(how.removeprefix("lock ")))
    if how == "half a checkpoint":
        torch.save = save_half  # type: ignore[assignment]
    if how in ("half a part", "half a part, and wait", "all but the name"):
        hit_sharded_save(how)


def fill(disk: Path) -> None:
    """Write until the disk that this folder is on has no byte left."""
    with suppress(OSError), open(disk / "filler", "wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass


def lock(folder: Path) -> None:
    """Take away the permission to write there, as ``chmod -R a-w`` does."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(path.stat().st_mode & ~0o222)


def save_half(state: Any, file: IO[bytes], **options: Any) -> None:
    if options:  # ranks exchange small tensors by torch.save as well
        SAVE(state, file, **options)
        return
    file.write(b"half of a checkpoint")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)


def hit_sharded_save(how: str) -> None:
    """Be killed in the middle of a rank's own file, or when all is written but the folder has not got its name.

    Or wait there for somebody else to be killed.
    """
    from manyheads.runner.checkpoint.sharded.rank import shard_files, write_sharded

    def end(path: Path, *_: Any) -> None:
        if how.startswith("half a part"):
            path.write_bytes(HALF_A_PART)
        if how.endswith("wait"):
            time.sleep(3600)
        os.kill(os.getpid(), signal.SIGKILL)

    if how.startswith("half a part"):
        write_sharded.write_file = end
    else:
        shard_files.take_name = write_sharded.take_name = end


class Hungry(SmallCNN):
    """small_cnn that is out of memory while it trains on more than ``most`` samples at once."""

    def __init__(self, *, num_classes: int, most: int, width: int = 2):
        super().__init__(num_classes=num_classes, width=width)
        self._most = most

    def forward(self, images: Tensor) -> Tensor:
        if self.training and len(images) > self._most:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return super().forward(images)
