"""MLflow itself: its client, and its server with a database on this machine, which is killed, hangs and comes back."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from manyheads.launchers.companions import Accompanied
from manyheads.launchers.companions.publishing import accompany
from manyheads.launchers.companions.publishing.publisher import Publisher
from manyheads.launchers.launch import launch, prepare
from manyheads.runner.app import main
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.provenance.provenance import record
from manyheads.runner.run.ledger import Entry, Ledger
from manyheads.runner.run.run_folder import RunFolder
from tests.callbacks.tracking import wait_for
from tests.in_process import rows, small
from tests.launchers.companions.publishing.conftest import change, resume_to_the_end

# The mechanism is tested without it, in test_publisher.py and test_process.py.
pytestmark = [pytest.mark.tail, pytest.mark.needs("mlflow", "flask", "sqlalchemy", "aiohttp")]


class Server:
    """`mlflow server` over SQLite, on a port of its own."""

    def __init__(self, folder: Path):
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.uri, self._folder, self._process = f"http://127.0.0.1:{self.port}", folder, None

    def start(self) -> None:
        if self._process:
            self._process.wait()
        command = [sys.executable, "-m", "mlflow", "server", "--port", str(self.port), "--workers", "1"]
        command += ["--backend-store-uri", f"sqlite:///{self._folder}/db"]
        command += ["--artifacts-destination", str(self._folder / "artifacts")]
        environment = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        with open(self._folder / "log", "a") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, env=environment, start_new_session=True, cwd=self._folder
            )
        wait_for(self.answers, seconds=120)

    def answers(self) -> bool:
        try:
            return urllib.request.urlopen(f"{self.uri}/health", timeout=5).status == 200
        except OSError:
            return False

    def signal(self, signum: int) -> None:
        os.killpg(self._process.pid, signum)

    def stop(self) -> None:
        self.signal(signal.SIGKILL)
        self._process.wait()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    one = Server(tmp_path_factory.mktemp("mlflow"))
    one.start()
    yield one
    one.stop()


def planned(path: Path, uri: str, *overrides: str) -> RunFolder:
    folder = RunFolder(path)
    config = small("logger=mlflow", f"logger.mlflow.tracking_uri={uri}", *overrides)
    folder.write_config(config)
    record(folder, config)
    return folder


def client(server: Server):
    from mlflow import MlflowClient

    return MlflowClient(server.uri)


def runs(server: Server, experiment: str) -> list:
    there = client(server)
    return there.search_runs([there.get_experiment_by_name(experiment).experiment_id])


def assert_whole(server: Server, folder: RunFolder, experiment: str, *, status: str = "FINISHED") -> None:
    """The run is there once, with each row once."""
    (run,) = runs(server, experiment)
    assert run.info.status == status
    history = client(server).get_metric_history(run.info.run_id, "train/loss")
    found = sorted((point.step, point.value, point.timestamp) for point in history)
    table = rows(folder.steps)
    assert found == [(int(r["step"]), float(r["loss"]), round(1000 * float(r["time"]))) for r in table]
    epochs = client(server).get_metric_history(run.info.run_id, "epoch/val_acc1")
    assert [point.value for point in epochs] == [float(row["val_acc1"]) for row in rows(folder.epochs)]
    assert run.data.params["optimizer.lr"] == "0.05"


def test_a_run_resumed_and_published_again_is_one_run(tmp_path, server, capsys, monkeypatch):
    more = ("logger.mlflow.experiment=one", "logger.mlflow.checkpoint=last")
    folder = planned(tmp_path / "run", server.uri, *more, "trainer.stop_after=13")
    launch(prepare(folder))
    resume_to_the_end(folder)
    for _ in range(2):
        monkeypatch.setattr(sys, "argv", ["manyheads", "publish", str(folder.path)])
        assert main() == 0
    assert_whole(server, folder, "one")
    (run,) = runs(server, "one")
    assert {file.path for file in client(server).list_artifacts(run.info.run_id)} >= {"run.yaml", "checkpoints"}
    assert f"{server.uri}/#/experiments/{run.info.experiment_id}/runs/{run.info.run_id}" in capsys.readouterr().out


def test_a_sweep_is_a_run_with_runs_below_it(tmp_path, server):
    sweep = tmp_path / "sweep"
    ledger = Ledger(sweep)
    ledger.create({}, *(Entry(job, str(job), [f"seed={job}"], state="completed") for job in (0, 1)))
    for job in (0, 1):
        launch(
            prepare(
                planned(
                    sweep / str(job), server.uri, "logger.mlflow.experiment=swept", f"seed={job}", "trainer.max_steps=4"
                )
            )
        )
    found = runs(server, "swept")
    (parent,) = [run for run in found if "manyheads.sweep" in run.data.tags]
    children = [run for run in found if run.data.tags.get("mlflow.parentRunId") == parent.info.run_id]
    assert {run.data.tags["manyheads.overrides"] for run in children} == {"seed=0", "seed=1"}
    assert {run.info.status for run in found} == {"FINISHED"}
    assert len(found) == 3


def test_a_failed_run_has_failed(tmp_path, server):
    folder = planned(tmp_path / "run", server.uri, "logger.mlflow.experiment=bad", "optimizer.lr=1e30")
    with pytest.raises(Exception, match="the loss became"):
        launch(prepare(folder))
    (run,) = runs(server, "bad")
    assert run.info.status == "FAILED"
    assert "the loss became" in run.data.tags["manyheads.error"]


@pytest.mark.parametrize("trouble", ["killed", "hanging"])
def test_a_server_in_trouble_costs_no_training_and_gets_all_of_it_later(tmp_path, capfd, trouble):
    own = Server(tmp_path)
    own.start()
    folder = planned(tmp_path / "run", own.uri, "trainer.log_every=1")
    try:
        with accompany(Accompanied(folder, RunConfig.read(folder))):
            wait_for(lambda: (folder.path / "trackers" / "mlflow.json").exists(), seconds=60)
            own.signal(signal.SIGKILL if trouble == "killed" else signal.SIGSTOP)
            config = folder.read_config()
            change(folder, {**config, "logger": {}})
            result = launch(prepare(folder))
            change(folder, config)
            began = time.monotonic()
        assert result["status"] == "completed"
        assert time.monotonic() - began < 25
        said = capfd.readouterr().err
        assert said.count("warning: logger.mlflow: this run was only partly published") == 1
        own.signal(signal.SIGCONT) if trouble == "hanging" else own.start()
        publish_all(RunFolder(folder.path), own)
    finally:
        own.stop()


def publish_all(folder: RunFolder, server: Server) -> None:
    from manyheads.launchers.companions.publishing.publisher import tracker_of

    for _ in range(2):
        Publisher(folder, "mlflow", tracker_of("mlflow", folder.read_config()["logger"]["mlflow"])).finish()
    assert_whole(server, folder, "manyheads")
