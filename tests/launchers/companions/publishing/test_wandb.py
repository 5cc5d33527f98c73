"""Weights & Biases' own client: against a stand-in for its service, and offline."""

import io
import json
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from manyheads.runner.run.pictures import with_step
from manyheads.runner.run.run_folder import RunFolder
from tests.in_process import rows
from tests.launchers.companions.publishing.wandb_server import Service

KEY = "01234abcde" * 4


pytestmark = pytest.mark.needs("wandb")


@pytest.fixture
def service(monkeypatch, tmp_path):
    one = Service()
    for name, value in {
        "WANDB_BASE_URL": one.uri,
        "WANDB_API_KEY": KEY,
        "WANDB_CONFIG_DIR": str(tmp_path / "config"),
        "WANDB_CACHE_DIR": str(tmp_path / "cache"),
    }.items():
        monkeypatch.setenv(name, value)
    yield one
    one.close()


def publish(folder: RunFolder, *more: str) -> subprocess.CompletedProcess:
    """In a process of its own: the client leaves threads and a process behind until that ends."""
    command = [sys.executable, "-m", "manyheads.runner", "publish", str(folder.path), "--to", "wandb", *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done


def cut(path: Path, count: int) -> str:
    text = path.read_text()
    path.write_text("".join(text.splitlines(keepends=True)[: count + 1]))
    return text


def records(folder: Path) -> list:
    """What an offline run's file says. Source of the format: LevelDB's log."""
    from wandb.proto import wandb_internal_pb2

    (path,) = folder.glob("offline-run-*/run-*.wandb")
    content, offset, buffer, found = path.read_bytes(), 7, b"", []
    while offset + 7 <= len(content):
        if (left := 32768 - offset % 32768) < 7:
            offset += left
            continue
        _, length, kind = struct.unpack("<IHB", content[offset : offset + 7])
        part = content[offset + 7 : offset + 7 + length]
        offset += 7 + length
        buffer = part if kind in (1, 2) else buffer + part
        if kind in (1, 4):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(buffer)
            found.append(record)
    return found


def offline_losses(folder: Path) -> list[tuple[int, float]]:
    return [(items["step"], items["train/loss"]) for items in history(folder) if "train/loss" in items]


def history(folder: Path) -> list[dict]:
    rows = [record.history.item for record in records(folder) if record.WhichOneof("record_type") == "history"]
    return [{item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in row} for row in rows]


def table(folder: RunFolder) -> list[tuple[int, float]]:
    return [(int(row["step"]), float(row["loss"])) for row in rows(folder.steps)]


@pytest.mark.tail
@pytest.mark.slow
def test_a_run_grows_and_nothing_is_there_twice(finished, service):
    whole, epochs = cut(finished.steps, 3), cut(finished.epochs, 0)
    publish(finished)
    (key,) = service.runs
    assert key == json.loads(finished.provenance.read_text())["id"]
    finished.steps.write_text(whole)
    finished.epochs.write_text(epochs)
    for _ in range(2):
        publish(finished)
    (run,) = service.runs.values()
    history = [run.history[line] for line in sorted(run.history)]
    assert [(row["step"], row["train/loss"]) for row in history if "train/loss" in row] == table(finished)
    times = [row["_timestamp"] for row in history if "train/loss" in row]
    assert times == [float(row["time"]) for row in rows(finished.steps)]
    accuracies = [(row["step"], row["epoch/val_acc1"]) for row in history if "epoch/val_acc1" in row]
    assert accuracies == [(int(row["step"]), float(row["val_acc1"])) for row in rows(finished.epochs)]
    assert run.exit_code == 0
    assert run.summary["status"] == "completed"
    assert {"run.yaml", "result.json"} <= run.files


@pytest.mark.slow
@pytest.mark.tail
def test_offline_is_one_directory_without_links_and_keys(finished, service):
    (finished.path / "trackers").mkdir()
    whole = cut(finished.steps, 3)
    publish(finished, "logger.wandb.mode=offline")
    finished.steps.write_text(whole)
    publish(finished, "logger.wandb.mode=offline")
    assert offline_losses(finished.path / "wandb") == table(finished)
    assert not [path for path in finished.path.rglob("*") if path.is_symlink()]
    assert not [path for path in finished.path.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]
    assert list((finished.path / "wandb").glob("*/files/result.json"))
    assert not service.runs


@pytest.mark.slow
@pytest.mark.ci
def test_pictures_are_images_at_their_step(finished, service):
    file = io.BytesIO()
    Image.new("RGB", (4, 4), "red").save(file, format="png")
    finished.pictures.mkdir()
    drawn = {"early": with_step(file.getvalue(), 8), "last": with_step(file.getvalue(), 40)}
    for name, png in {**drawn, "broken": with_step(file.getvalue()[:40], 40)}.items():
        (finished.pictures / f"{name}.png").write_bytes(png)
    publish(finished, "logger.wandb.mode=offline")
    last = history(finished.path / "wandb")[-1]
    print("HIST")
    captions = [last.get(f"pictures/{name}/caption") for name in ("early", "last", "broken")]
    assert (last["step"], *captions) == (40, "after 8 updates", "after 40 updates", None)
    images = sorted((finished.path / "wandb").glob("*/files/media/images/pictures/*.png"))
    assert [image.read_bytes() for image in images] == [*drawn.values()]
    assert offline_losses(finished.path / "wandb") == table(finished)


@pytest.mark.slow
@pytest.mark.tail
def test_a_service_that_is_not_there_is_told(finished, service):
    command = [sys.executable, "-m", "manyheads.runner", "publish", str(finished.path), "--to", "wandb"]
    done = subprocess.run([*command, "logger.wandb.base_url=http://127.0.0.1:9"], capture_output=True, text=True)
    assert done.returncode == 1
    assert "To send what is missing, run: " in done.stderr
    assert KEY not in done.stderr
