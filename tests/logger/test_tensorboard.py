"""What TensorBoard makes of a run: its own backend reads what ours wrote."""

import json
import struct
import subprocess
import sys
import urllib.request
import zlib
from pathlib import Path

import pytest
from tensorboard.backend.event_processing import data_provider
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
from tensorboard.context import RequestContext
from tensorboard.plugins.base_plugin import TBContext
from tensorboard.plugins.hparams import api_pb2, backend_context, list_session_groups

from manyheads.runner.logger.logger import LoggedRun
from manyheads.runner.logger.rank.tensorboard import TensorBoard
from tests.callbacks.tracking import wait_for
from tests.in_process import rows, small, train
from tests.tail import tail


def png(width: int, height: int) -> bytes:
    """A grey picture."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        checked = kind + content
        return struct.pack(">I", len(content)) + checked + struct.pack(">I", zlib.crc32(checked))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    lines = zlib.compress((b"\0" + b"\x80" * width) * height)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", lines) + chunk(b"IEND", b"")


def write_run(folder: Path, lr: float) -> None:
    folder.mkdir(parents=True)
    board = TensorBoard()
    config = {"seed": 1, "optimizer": {"lr": lr, "nesterov": True, "name": "sgd"}, "data": {"root": None}}
    board.start(LoggedRun(folder, config, 0, ["val_acc1"]))
    board.step({"step": 10, "loss": 1.0, "lr": lr, "grad_norm": 2.0, "samples_per_second": 5.0, "time": 1e9})
    board.epoch({"step": 10, "val_acc1": 50.0, "peak_memory_mb": 7.0, "data_seconds": 0.5, "epoch": 1})
    board.picture("confusion_matrix", png(3, 2), 10)
    best = {"epoch": 1, "val_acc1": 100 * lr}
    board.end({"status": "completed", "steps": 10, "best": best, "objective": 100 * lr})
    board.close()


def sessions(folder: Path) -> dict[str, api_pb2.SessionGroup]:
    """The rows of the tab HPARAMS, by run."""
    multiplexer = EventMultiplexer()
    multiplexer.AddRunsFromDirectory(str(folder))
    multiplexer.Reload()
    provider = data_provider.MultiplexerDataProvider(multiplexer, str(folder))
    context, request = backend_context.Context(TBContext(data_provider=provider)), RequestContext()
    found = context.hparams_metadata(request, "")
    experiment = context.experiment_from_metadata(request, "", True, found, [])
    asked = api_pb2.ListSessionGroupsRequest(start_index=0, slice_size=1000)
    asked.allowed_statuses.extend([api_pb2.STATUS_SUCCESS, api_pb2.STATUS_FAILURE, api_pb2.STATUS_RUNNING])
    for metric in experiment.metric_infos:
        asked.col_params.add().metric.CopyFrom(metric.name)
    handler = list_session_groups.Handler(request, context, "", asked)
    return {session.name: group for group in handler.run().session_groups for session in group.sessions}


def test_a_hundred_runs_are_a_table_of_hyperparameters_and_final_metrics(tmp_path):
    for number in range(100):
        write_run(tmp_path / f"{number:02}", lr=number / 100)
    found = sessions(tmp_path)
    assert len(found) == 100
    group = found["42/tensorboard"]
    assert {name: value.number_value for name, value in group.hparams.items() if name == "optimizer.lr"} == {
        "optimizer.lr": pytest.approx(0.42)
    }
    assert group.hparams["optimizer.nesterov"].bool_value is True
    assert group.hparams["optimizer.name"].string_value == "sgd"
    assert "data.root" not in group.hparams
    (session,) = group.sessions
    assert session.status == api_pb2.STATUS_SUCCESS
    metrics = {metric.name.tag: metric.value for metric in session.metric_values}
    assert metrics["best/objective"] == metrics["best/val_acc1"] == pytest.approx(42, rel=1e-6)


def test_a_run_has_its_config_as_text_its_pictures_and_the_times_of_its_rows(tmp_path):
    folder = train(tmp_path / "run", small("trainer.max_steps=4", "trainer.log_every=2")).folder
    write_run(tmp_path / "drawn", lr=0.1)
    multiplexer = EventMultiplexer()
    multiplexer.AddRunsFromDirectory(str(tmp_path))
    multiplexer.Reload()
    (text,) = multiplexer.Tensors("run/tensorboard", "config")
    assert "seed: 1\n" in text.tensor_proto.string_val[0].decode()
    times = [event.wall_time for event in multiplexer.Tensors("run/tensorboard", "train/loss")]
    assert times == [pytest.approx(float(row["time"])) for row in rows(folder.steps)]
    (picture,) = multiplexer.Tensors("drawn/tensorboard", "confusion_matrix")
    assert picture.tensor_proto.string_val[:2] == [b"3", b"2"]
    assert "seconds/data" in multiplexer.Runs()["drawn/tensorboard"]["tensors"]


@pytest.mark.parametrize("runs", [tail(100)])
def test_the_server_shows_them(tmp_path, runs):
    for number in range(runs):
        write_run(tmp_path / f"{number:02}", lr=number / 100)
    log = tmp_path / "server.log"
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(tmp_path), "--port", "0", "--load_fast=false"]
    with open(log, "w") as file, subprocess.Popen(command, stdout=file, stderr=file) as server:
        try:
            wait_for(lambda: "http://localhost:" in log.read_text(), seconds=120)
            port = log.read_text().partition("http://localhost:")[2].partition("/")[0]
            wait_for(lambda: len(_get(port, "runs")) == runs, seconds=120)
            tags = _get(port, "plugin/scalars/tags")
            assert len(tags) == runs
            assert all("best/objective" in each for each in tags.values())
        finally:
            server.terminate()


def _get(port: str, path: str):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/data/{path}", timeout=10) as answer:
        return json.load(answer)
