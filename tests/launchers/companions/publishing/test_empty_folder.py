"""Publishing in a folder that somebody may have sent: nothing there chooses where runs go."""

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from manyheads.launchers.companions.publishing.empty_folder import in_empty_folder, tell_unread
from manyheads.runner.config.project import own_project
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.logger.mlflow import Store, absolute
from manyheads.runner.option.declared import declared
from manyheads.runner.run import seal
from tests.launchers.companions.publishing.wandb_server import Service

WANDB = {
    "_target_": "manyheads.runner.logger.wandb.WandB",
    "_option_": "manyheads.runner.logger.wandb.WandBOption",
}


@pytest.fixture
def sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with settings and a database in it that nobody here wrote."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    folder = tmp_path / "sent"
    (folder / "wandb").mkdir(parents=True)
    (folder / "wandb" / "settings").write_text("[default]\nbase_url = http://127.0.0.1:9\n")
    (folder / "mlflow.db").touch()
    monkeypatch.chdir(folder)
    return folder


def test_a_tracker_stands_in_an_empty_folder(sent):
    with in_empty_folder():
        assert os.listdir() == []
        inside = Path.cwd()
    assert Path.cwd() == sent
    assert not inside.exists()


def test_a_folder_that_the_user_named_stays_the_same(sent, monkeypatch):
    monkeypatch.setenv("TRACKIO_DIR", "mine")
    with in_empty_folder():
        assert os.environ["TRACKIO_DIR"] == str(sent / "mine")


def test_in_a_project_of_the_users_own_it_stays(sent):
    seal.trust(own_project(sent), None)
    with in_empty_folder():
        assert Path.cwd() == sent


def test_what_is_not_read_is_named_once(sent, capsys):
    tell_unread([declared("logger", WANDB)] * 2)
    err = capsys.readouterr().err
    assert err.count("wandb/settings is not read") == 1
    assert "trust ." in err
    seal.trust(own_project(sent), None)
    tell_unread([declared("logger", WANDB)])
    assert capsys.readouterr().err == ""


@pytest.mark.needs("mlflow")
class TestMLflow:
    @pytest.mark.parametrize("name", ["mlflow.db", "mlruns"])
    def test_somebody_elses_database_is_not_used(self, sent, name):
        (sent / "mlflow.db").rename(sent / name)
        store = Store(None)
        with in_empty_folder(), pytest.raises(ConfigurationError, match="may be somebody else's"):
            store.client()

    def test_one_that_the_user_named_is(self, sent, monkeypatch):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///mlflow.db")
        assert Store(None)._uri == f"sqlite:///{sent}/mlflow.db"

    @pytest.mark.needs("sqlalchemy")
    @pytest.mark.filterwarnings("ignore")  # of SQLAlchemy, about MLflow
    def test_the_users_own_is_used_again_with_its_files_beside_it(self, sent):
        (sent / "mlflow.db").unlink()
        for _ in range(2):
            store = Store(None)
            with in_empty_folder():
                client = store.client()
                client.get_experiment_by_name("mine") or client.create_experiment("mine")
        places = sqlite3.connect(sent / "mlflow.db").execute("select artifact_location from experiments").fetchall()
        assert places
        assert all(str(sent / "mlruns") in place for (place,) in places)


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("sqlite:///mlflow.db", "sqlite:///{here}/mlflow.db"),
        ("sqlite:////data/mlflow.db", "sqlite:////data/mlflow.db"),
        ("mlruns", "{here}/mlruns"),
        ("./mlruns", "{here}/mlruns"),
        ("file:mlruns", "file:{here}/mlruns"),
        ("file:///data/mlruns", "file:///data/mlruns"),
        ("http://127.0.0.1:5000", "http://127.0.0.1:5000"),
        ("databricks", "databricks"),
        ("postgresql://me@there/runs", "postgresql://me@there/runs"),
    ],
)
def test_an_address_means_the_same_everywhere(tmp_path, monkeypatch, uri, expected):
    monkeypatch.chdir(tmp_path)
    assert absolute(uri) == expected.format(here=tmp_path)


@pytest.mark.needs("wandb")
@pytest.mark.tail
def test_settings_of_wandb_do_not_receive_the_key(finished, sent, monkeypatch, tmp_path):
    service = Service()
    (sent / "wandb" / "settings").write_text(f"[default]\nbase_url = {service.uri}\n")
    monkeypatch.setenv("WANDB_API_KEY", "01234abcde" * 4)
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "config"))
    command = [sys.executable, "-m", "manyheads.runner", "publish", str(finished.path), "--to", "wandb"]
    done = subprocess.run(command, cwd=sent, capture_output=True, text=True, timeout=200)
    service.close()
    assert "wandb/settings is not read" in done.stderr
    assert service.runs == {}
