"""Runs that are copied to object storage while they train: what is left of one is resumed elsewhere, to the bit."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from manyheads.launchers.companions.mirror.follower import address_of
from manyheads.runner.callbacks.callback import Callback
from manyheads.runner.checkpoint.mirror_manifest import NAME, MirrorManifest
from manyheads.runner.checkpoint.rank.load import weights_sha256
from manyheads.runner.run.objects import Address
from manyheads.runner.run.run_folder import LEDGER, RunFolder
from tests.conftest import RUN, execute
from tests.object_storage import SECRETS
from tests.optional_wings import load

pytestmark = [pytest.mark.needs("obstore", "moto"), pytest.mark.processes]
SMALL = ("model=mlp", "model.width=8", "trainer.device=cpu", "data.batch_size=128", "launcher.threads_per_rank=1")
LONG = ("trainer.epochs=4", "checkpoint.keep=2")
SLOW = "+callbacks.slow._target_=tests.launchers.companions.mirror.test_mirroring.Slow"


class Slow(Callback):
    """A user's own callback, by which an epoch takes long enough to be killed in."""

    def on_epoch(self, row: object) -> None:
        time.sleep(1.0)


def manyheads(*words: str, cwd: Path):
    return execute(sys.executable, "-m", "manyheads.runner", *words, cwd=cwd)


def train(*words: str, cwd: Path):
    return execute(sys.executable, str(RUN), *SMALL, *words, cwd=cwd)


def stored(s3, name: str) -> MirrorManifest | None:
    found = s3.get(f"{name}/{NAME}")
    return None if found is None else MirrorManifest.parse(found, of=name)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> dict:
    folder = tmp_path_factory.mktemp("local")
    done = train(*LONG, "hydra.run.dir=run", cwd=folder)
    assert done.code == 0, done.err
    return RunFolder(folder / "run").read_result()


def test_a_job_of_a_sweep_is_copied_under_its_own_name(tmp_path):
    (tmp_path / "sweep" / "3").mkdir(parents=True)
    assert address_of(RunFolder(tmp_path / "sweep" / "3"), "s3://b/x/") == Address("s3://b/x")
    (tmp_path / "sweep" / LEDGER).touch()
    assert address_of(RunFolder(tmp_path / "sweep" / "3"), "s3://b/x/") == Address("s3://b/x/3")


@pytest.mark.tail
def test_a_run_whose_machine_is_lost_is_resumed_from_its_copy_to_the_bit(s3, tmp_path, uninterrupted):
    name, here, there = f"{tmp_path.name}/lost", tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    words = (*SMALL, *LONG, "hydra.run.dir=run", f"checkpoint.mirror=s3://bucket/{name}", SLOW)
    with subprocess.Popen(
        [sys.executable, str(RUN), *words],
        cwd=here,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        deadline = time.monotonic() + 60
        while (found := stored(s3, name)) is None or "checkpoints/last.pt" not in found.files:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
    assert (RunFolder(here / "run").read_result() or {}).get("status") != "completed"
    done = manyheads("resume", f"s3://bucket/{name}", "trust=[tests]", cwd=there)
    assert done.code == 0, done.err
    assert f"fetched s3://bucket/{name} into outputs/lost" in done.out
    assert f"stored in s3://bucket/{name}" in done.out
    result = RunFolder(there / "outputs" / "lost").read_result()
    assert result["weights_sha256"] == uninterrupted["weights_sha256"]
    kept = sorted(path for path in stored(s3, name).files if path.startswith("checkpoints/step_"))
    assert kept == ["checkpoints/step_00000033.pt", "checkpoints/step_00000044.pt"]
    refused = manyheads("resume", f"s3://bucket/{name}", cwd=there)
    assert (refused.code, "outputs/lost already exists" in refused.err) == (2, True)


def test_a_run_is_stored_with_its_result_and_its_weights_are_loaded_from_there(s3, tmp_path):
    address = f"s3://bucket/{tmp_path.name}/run"
    done = train("trainer.epochs=1", "hydra.run.dir=run", f"checkpoint.mirror={address}", cwd=tmp_path)
    assert (done.code, f"stored in {address}" in done.out) == (0, True), done.err
    files = stored(s3, f"{tmp_path.name}/run").files
    assert {"run.yaml", "seal.json", "result.json", "steps.csv", "checkpoints/last.pt", "checkpoints/best.pt"} <= {
        *files
    }
    weights = [weights_sha256(load(place).model.state_dict()) for place in (address, tmp_path / "run")]
    assert weights[0] == weights[1]


@pytest.mark.tail
def test_a_server_that_is_away_ends_no_training_and_what_is_missing_is_stored_later(s3, tmp_path):
    name = f"{tmp_path.name}/away"
    address = f"s3://bucket/{name}"
    s3.stop()
    words = ("trainer.epochs=1", "hydra.run.dir=run", f"checkpoint.mirror={address}", "checkpoint.mirror_wait=1s")
    done = train(*words, cwd=tmp_path)
    assert done.code == 1
    assert f"{address} does not hold checkpoints/best.pt, checkpoints/last.pt" in done.err
    assert "the run is complete, but" in done.err
    assert str(s3.port) not in done.out + done.err
    assert RunFolder(tmp_path / "run").read_result()["status"] == "completed"
    s3.start()
    done = manyheads("resume", "run", cwd=tmp_path)
    assert (done.code, f"stored in {address}" in done.out) == (0, True), done.err
    done = manyheads("show", address, "--json", cwd=tmp_path)
    assert done.code == 0, done.out + done.err
    page = json.loads(done.out)["result"]
    assert (page["folder"], page["status"]) == (address, "completed")
    assert "/manyheads-" not in json.dumps(page)
    done = manyheads("export", address, "--format", "safetensors", cwd=tmp_path)
    assert (done.code, (tmp_path / "away.safetensors").is_file()) == (0, True), done.err
    (tmp_path / "longer").mkdir()
    longer = manyheads("resume", address, "trainer.epochs=2", cwd=tmp_path / "longer")
    assert (longer.code, f"stored in {address}" in longer.out) == (0, False), longer.err
    again = train(*words[:1], "seed=2", "hydra.run.dir=other", *words[2:], cwd=tmp_path)
    assert (again.code, f"{address} holds another run" in again.err) == (2, True), again.err
    for path in (tmp_path / "run").rglob("*"):
        content = path.read_bytes() if path.is_file() else b""
        for each in (*SECRETS, f"127.0.0.1:{s3.port}"):
            assert each.encode() not in content, path
