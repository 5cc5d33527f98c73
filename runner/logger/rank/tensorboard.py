"""TensorBoard's event files, written by the training thread itself.

torch's SummaryWriter passes each number to a thread, which blocks the training loop by Python's interpreter lock ten
times as long as writing takes, and computes checksums in Python. Here a row is one record, and records are written
together. Source of the format: https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details.
"""

import os
import socket
import struct
from itertools import count
from pathlib import Path
from time import time as now

import google_crc32c
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.proto.types_pb2 import DT_FLOAT, DT_STRING
from tensorboard.plugins.hparams.api_pb2 import STATUS_FAILURE, STATUS_SUCCESS
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from manyheads.runner.logger.logger import LoggedRun, Logger
from manyheads.runner.option.tree import Section
from manyheads.runner.run.data_files import no_link
from manyheads.runner.run.files import make_folder
from manyheads.runner.run.frozen_config import text_of
from manyheads.runner.run.json_types import Numbers, ResultJson
from manyheads.runner.run.tables.columns import TRAINING
from manyheads.runner.run.yaml_text import flatten

FOLDER = "tensorboard"
STEP_TAGS = {name: f"train/{name}" for name in ("loss", "lr", "grad_norm", "samples_per_second")}
EPOCH_TAGS = {"peak_memory_mb": "memory/peak_mb"}
EPOCH_TAGS |= {f"{part}_seconds": f"seconds/{part}" for part in (*TRAINING, "checkpoint")}
_files = count()  # of this process, which may open several in a second


class TensorBoard(Logger):
    """Curves of steps under ``train/``, of epochs under ``epoch/``, ``memory/`` and ``seconds/``, in <run>/tensorboard.

    Also the config as text and, for the tab HPARAMS, its plain values with the run's best metrics.
    """

    is_quick = True

    def start(self, run: LoggedRun) -> None:
        self._board = EventWriter(run.folder / FOLDER, purge_step=run.step + 1)
        self._epoch_tags = {name: f"epoch/{name}" for name in run.scores} | EPOCH_TAGS
        if run.config:
            self._board.write(config_text(run.config), run.step)
            self._board.write(session_start(run.config, name=run.folder.name), run.step)

    def step(self, row: Numbers) -> None:
        self._add(STEP_TAGS, row, time=row["time"])

    def epoch(self, row: Numbers) -> None:
        self._add(self._epoch_tags, row)

    def evaluation(self, row: Numbers) -> None:
        self.epoch(row)

    def _add(self, tags: dict[str, str], row: Numbers, *, time: float | None = None) -> None:
        values = {tag: value for name, tag in tags.items() if (value := row.get(name)) is not None}
        self._board.add(values, int(row["step"] or 0), time=time)

    def picture(self, name: str, png: bytes, step: int) -> None:
        self._board.write(image(name, png), step)

    def flush(self) -> None:
        self._board.flush()

    def end(self, result: ResultJson) -> None:
        best = {f"best/{name}": value for name, value in (result["best"] or {}).items() if value is not None}
        if result["objective"] is not None:
            self._board.add({"best/objective": result["objective"], **best}, result["steps"])
        self._board.write(session_end(completed=result["status"] == "completed"), result["steps"])

    def close(self) -> None:
        self._board.close()


def config_text(config: Section) -> Summary.Value:
    """The run config for the tab TEXT, as the YAML of run.yaml."""
    value = Summary.Value(tag="config")
    value.metadata.plugin_data.plugin_name = "text"
    value.tensor.dtype = DT_STRING
    value.tensor.string_val.append(f"```yaml\n{text_of(config)}```".encode())
    return value


def session_start(config: Section, *, name: str) -> Summary.Value:
    """The plain values of the config for the tab HPARAMS. Source: tensorboard/plugins/hparams/plugin_data.proto."""
    data = HParamsPluginData()
    info = data.session_start_info
    info.group_name, info.start_time_secs = name, now()
    for key, value in flatten(config).items():
        if isinstance(value, bool):
            info.hparams[key].bool_value = value
        elif isinstance(value, (int, float)):
            info.hparams[key].number_value = value
        elif isinstance(value, str):
            info.hparams[key].string_value = value
    return _of_hparams("session_start_info", data)


def session_end(*, completed: bool) -> Summary.Value:
    """How the run ended, for the tab HPARAMS."""
    data = HParamsPluginData()
    data.session_end_info.status = STATUS_SUCCESS if completed else STATUS_FAILURE
    data.session_end_info.end_time_secs = now()
    return _of_hparams("session_end_info", data)


def _of_hparams(what: str, data: HParamsPluginData) -> Summary.Value:
    value = Summary.Value(tag=f"_hparams_/{what}")
    value.metadata.plugin_data.plugin_name = "hparams"
    value.metadata.plugin_data.content = data.SerializeToString()
    value.tensor.dtype = DT_FLOAT
    value.tensor.tensor_shape.dim.add(size=0)
    return value


def image(name: str, png: bytes) -> Summary.Value:
    """A picture for the tab IMAGES; its size is in the PNG's first chunk."""
    width, height = struct.unpack(">II", png[16:24])
    return Summary.Value(tag=name, image=Summary.Image(width=width, height=height, encoded_image_string=png))


class EventWriter:
    """One event file in ``folder``. ``purge_step``: TensorBoard ignores earlier files' data from this step on."""

    def __init__(self, folder: Path, *, purge_step: int):
        make_folder(folder)
        name = f"events.out.tfevents.{int(now()):010}.{socket.gethostname()}.{os.getpid()}.{next(_files)}"
        self._file = open(folder / name, "xb", opener=no_link)  # noqa: SIM115
        self._waiting: list[tuple[float, dict[str, float], int]] = []
        self._write(Event(wall_time=now(), file_version="brain.Event:2"))
        start = SessionLog(status=SessionLog.START)
        self._write(Event(wall_time=now(), step=purge_step, session_log=start))
        self.flush()

    def add(self, values: dict[str, float], step: int, *, time: float | None = None) -> None:
        """Add a point to each curve, by tag; ``flush`` writes it. ``time``: in seconds since 1970, None for now."""
        self._waiting.append((now() if time is None else time, values, step))

    def write(self, value: Summary.Value, step: int) -> None:
        """Write a value that is not a point of a curve, such as a picture."""
        self._write(Event(wall_time=now(), step=step, summary=Summary(value=[value])))

    def flush(self) -> None:
        """Write everything so far to the file."""
        for time, values, step in self._waiting:
            event = Event(wall_time=time, step=step)
            for tag, value in values.items():
                event.summary.value.add(tag=tag, simple_value=value)
            self._write(event)
        self._waiting = []
        self._file.flush()

    def close(self) -> None:
        """Write everything and close the file; repeated calls do nothing."""
        if not self._file.closed:
            self.flush()
            self._file.close()

    def _write(self, event: Event) -> None:
        content = event.SerializeToString()
        length = struct.pack("<Q", len(content))
        self._file.write(length + _checksum(length) + content + _checksum(content))


def _checksum(content: bytes) -> bytes:
    """CRC-32C, rotated and shifted as the format requires."""
    crc = google_crc32c.value(content)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
