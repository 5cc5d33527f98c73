"""Sends an up-to-date replica's state to one that rejoins, through a file that is loaded without running code.

torchft's own transport is an HTTP server on all interfaces, whose answer is unpickled.
"""

import os
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torchft.checkpointing.transport import CheckpointTransport

from manyheads.runner.run.checkpoint_places import StateDict
from manyheads.runner.run.files import whole_file

WAIT_SECONDS = 0.02


class FolderTransport(CheckpointTransport[dict[str, Any]]):
    """Sends and receives states through a ``folder`` that all replicas see.

    ``replica``: this replica's number; ``writes``: whether this rank writes, as its first one does. torchft asks a rank
    of its own choice for the state, and within a thread, where ranks cannot gather it: ``is_wanted`` records that it
    has asked, and after the quorum all ranks of the replica ``offer`` the state together.
    """

    def __init__(self, folder: Path, replica: int, *, writes: bool = True):
        self._folder, self._replica, self._writes = folder, replica, writes
        self._sent: Path | None = None
        self.is_wanted = False
        if writes:
            for left in folder.glob(f"replica_{replica}_step_*"):  # left by this replica when it died
                left.unlink(missing_ok=True)

    def metadata(self) -> str:
        return str(self._replica)

    def send_checkpoint(self, dst_ranks: list[int], step: int, state_dict: StateDict, timeout: timedelta) -> None:
        """Remember that another replica waits for the state."""
        self.is_wanted = True

    def offer(self, step: int, state: Callable[[], StateDict]) -> None:
        """Write the state, unless a failed quorum has already written it: the others would wait too long."""
        path = self._path(str(self._replica), step)
        if path == self._sent:
            return
        self.forget()
        state_dict = state()
        if self._writes:
            with whole_file(path) as file:
                torch.save(state_dict, file)
        self._sent = path

    def recv_checkpoint(self, src_rank: int, metadata: str, step: int, timeout: timedelta) -> dict[str, Any]:
        """Wait for the state of another replica. Raises TimeoutError if it does not arrive in time."""
        path, deadline = self._path(str(int(metadata)), step), time.monotonic() + timeout.total_seconds()
        while path.name not in os.listdir(self._folder):  # faster than exists() for others' files
            if time.monotonic() > deadline:
                raise TimeoutError(f"{path.name} did not arrive within {timeout.total_seconds():g} seconds")
            time.sleep(WAIT_SECONDS)
        return torch.load(path, map_location="cpu", weights_only=True)

    def disallow_checkpoint(self) -> None:
        """Called after each attempt at an update, also after one that has to be repeated: see ``forget``."""

    def forget(self) -> None:
        """Remove the state, because an update has been made: it has been read, or is no longer wanted."""
        if self._sent is not None:
            self._sent.unlink(missing_ok=True)
            self._sent = None

    def shutdown(self, wait: bool = True) -> None:
        self.forget()

    def _path(self, replica: str, step: int) -> Path:
        return self._folder / f"replica_{replica}_step_{step}.pt"
