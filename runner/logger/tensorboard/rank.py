"""TensorBoard's event files, written by the training thread itself.

torch's SummaryWriter hands each number to a thread, which takes the interpreter from the training loop for ten times as
long as the writing lasts, and computes checksums in Python. Here a row is one record, and records go to the disk
together. Source of the format: https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details.
"""

import os
import socket
import struct
import time
from itertools import count
from pathlib import Path
from typing import Any

import google_crc32c
from tensorboard.compat.proto.event_pb2 import Event, SessionLog

from manyheads.runner.logger.base import LoggedRun, Logger
from manyheads.runner.run.data_files import no_link

FOLDER = "tensorboard"
STEP_TAGS = {name: f"train/{name}" for name in ("loss", "lr", "grad_norm", "samples_per_second")}
_files = count()  # of this process, which may open several in a second


class TensorBoard(Logger):
    """Curves of steps under ``train/``, of epochs under ``epoch/``, in the run's folder ``tensorboard``."""

    is_quick = True

    def start(self, run: LoggedRun) -> None:
        self._board = Board(run.folder / FOLDER, purge_step=run.step + 1)
        self._epoch_tags = {name: f"epoch/{name}" for name in run.scores}

    def step(self, row: dict[str, Any]) -> None:
        self._board.add({tag: row[name] for name, tag in STEP_TAGS.items()}, row["step"])

    def epoch(self, row: dict[str, Any]) -> None:
        tags = self._epoch_tags.items()
        self._board.add({tag: row[name] for name, tag in tags if row[name] is not None}, row["step"])

    def flush(self) -> None:
        self._board.flush()

    def close(self) -> None:
        self._board.close()


class Board:
    """One event file in ``folder``. ``purge_step``: TensorBoard forgets what earlier files say from there on."""

    def __init__(self, folder: Path, *, purge_step: int):
        folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{int(time.time()):010}.{socket.gethostname()}.{os.getpid()}.{next(_files)}"
        self._file = open(folder / name, "xb", opener=no_link)  # noqa: SIM115
        self._waiting: list[tuple[float, dict[str, float], int]] = []
        self._write(Event(wall_time=time.time(), file_version="brain.Event:2"))
        start = SessionLog(status=SessionLog.START)
        self._write(Event(wall_time=time.time(), step=purge_step, session_log=start))
        self.flush()

    def add(self, values: dict[str, float], step: int) -> None:
        """One point of each curve, by tag; in the file with the next ``flush``."""
        self._waiting.append((time.time(), values, step))

    def flush(self) -> None:
        """Everything so far is in the file."""
        for now, values, step in self._waiting:
            event = Event(wall_time=now, step=step)
            for tag, value in values.items():
                event.summary.value.add(tag=tag, simple_value=value)
            self._write(event)
        self._waiting = []
        self._file.flush()

    def close(self) -> None:
        if not self._file.closed:
            self.flush()
            self._file.close()

    def _write(self, event: Event) -> None:
        content = event.SerializeToString()
        length = struct.pack("<Q", len(content))
        self._file.write(length + _checksum(length) + content + _checksum(content))


def _checksum(content: bytes) -> bytes:
    """CRC-32C, rotated and shifted as the format asks for."""
    crc = google_crc32c.value(content)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
