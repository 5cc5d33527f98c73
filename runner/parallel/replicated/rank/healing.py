"""The state of a replica that is further, for one that has come back: by way of a file, of which no code is run.

torchft's own transport is an HTTP server on all interfaces, whose answer is unpickled.
"""

import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torchft.checkpointing.transport import CheckpointTransport

from manyheads.runner.run.files import whole_file

WAIT_SECONDS = 0.02


class FolderTransport(CheckpointTransport[dict[str, Any]]):
    """``folder``: one that all replicas see; ``replica``: this one's number."""

    def __init__(self, folder: Path, replica: int):
        self._folder, self._replica = folder, replica
        self._sent: Path | None = None
        for left in folder.glob(f"replica_{replica}_step_*"):  # by this replica before it died
            left.unlink(missing_ok=True)

    def metadata(self) -> str:
        return str(self._replica)

    def send_checkpoint(self, dst_ranks: list[int], step: int, state_dict: dict[str, Any], timeout: timedelta) -> None:
        """Write the state, unless it is there from a quorum that came to nothing: that took the others too long."""
        path = self._path(str(self._replica), step)
        if path != self._sent:
            self.forget()
            with whole_file(path) as file:
                torch.save(state_dict, file)
            self._sent = path

    def recv_checkpoint(self, src_rank: int, metadata: str, step: int, timeout: timedelta) -> dict[str, Any]:
        """Raises TimeoutError where it does not come."""
        path, deadline = self._path(str(int(metadata)), step), time.monotonic() + timeout.total_seconds()
        while path.name not in os.listdir(self._folder):  # which other machines' files are in sooner than in exists()
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
