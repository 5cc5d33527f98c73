"""What a run folder, which its owner may publish, must not hold; and what must not listen while a run goes on."""

import subprocess
import sys
import time

import psutil
import pytest

from manyheads.runner.config.section_rules import refuse_secrets
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.tree import leaves
from manyheads.runner.provenance import code_state
from manyheads.runner.provenance.provenance import recorded_environment, without_secrets
from tests.conftest import FAST, RUN
from tests.in_process import config
from tests.tail import tail

pytestmark = pytest.mark.ci


@pytest.mark.parametrize(
    "name",
    [
        *("NVIDIA_API_KEY", "SLURM_JWT", "TORCH_HUB_TOKEN", "PYTORCH_SECRET", "NCCL_PASSWORD", "CUDA_PWD"),
        *("HOROVOD_SECRET_KEY", "SLURM_AUTH_KEY", "NVIDIA_CREDENTIALS", "TORCH_Private", "WANDB_API_KEY", "HOME"),
    ],
)
def test_variables_that_may_be_secret_are_not_recorded(name):
    assert recorded_environment({name: "s3cret", "OMP_NUM_THREADS": "2"}) == {"OMP_NUM_THREADS": "2"}


@pytest.mark.parametrize(
    ("argument", "shown"),
    [
        ("https://me:s3cret@host/x", "https://***@host/x"),
        ("data.root=s3://key:s3cret@host", "data.root=s3://***@host"),
        ("+tracker.api_key=s3cret", "+tracker.api_key=***"),
        ("+tracker.password='s3cret'", "+tracker.password=***"),
        ("++x.token=s3cret", "++x.token=***"),
        ("model.width=4", "model.width=4"),
        ("data.root=/a/b@c", "data.root=/a/b@c"),
        ("trust=[my_package]", "trust=[my_package]"),
    ],
)
def test_passwords_on_the_command_line_are_masked(argument, shown):
    assert without_secrets(argument) == shown


@pytest.mark.parametrize(
    "typed",
    [
        "+model.hub_password=s3cret",
        "+data.token=s3cret,s3cret2",
        "+model.AccessKey=s3cret",
    ],
)
def test_keys_and_passwords_are_not_recorded(command_here, here, typed):
    for flags in ((), ("-m",)):
        done = command_here("train", *flags, typed, f"hydra.run.dir={here}/run", f"hydra.sweep.dir={here}/sweep")
        assert done.code == 2
        assert "=*** looks like a key or a password" in done.err
        assert "Keep it in the environment" in done.err
        assert "s3cret" not in done.err + done.out
        assert not (here / "run").exists()
        assert not (here / "sweep").exists()


@pytest.mark.parametrize(
    "values", [{"end_token": "<end>", "keys": "a", "tokenizer": "x", "author": "me", "password": None, "token": 3}]
)
def test_what_only_sounds_like_one_is(values):
    refuse_secrets(leaves({"data": values, "root": "s3://bucket/a@b"}))


def test_one_from_the_environment_is_not_recorded_either():
    with pytest.raises(ConfigurationError, match=r"model.api_key=\*\*\* looks like"):
        config("+model.api_key=s3cret", "model=custom", "model._target_=torch.nn.Linear")


@pytest.mark.parametrize(
    ("name", "is_taken"),
    [
        *(
            (name, False)
            for name in (".env", "id_rsa", "notes.yaml", "key.toml", "run.sh", "data.csv", "a/secrets.cfg")
        ),
        *((name, True) for name in ("new.py", "a/new.py", "conf/model/new.yaml")),
    ],
)
def test_of_files_that_git_does_not_know_only_code_is_taken(tmp_path, monkeypatch, name, is_taken):
    monkeypatch.setattr(code_state, "ROOT", tmp_path)
    for command in ("init -q", "-c user.name=a -c user.email=a@b commit -q --allow-empty -m first"):
        subprocess.run(["git", *command.split()], cwd=tmp_path, check=True)
    (tmp_path / "known.py").touch()
    subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("s3cret\n")
    assert (b"s3cret" in code_state.code_state()[1]) == is_taken


@pytest.mark.parametrize("hook", ["post-checkout", "fsmonitor-watchman"])
def test_no_hook_of_a_repository_runs(tmp_path, monkeypatch, hook):
    monkeypatch.setattr(code_state, "ROOT", tmp_path / "project")
    (tmp_path / "project").mkdir()
    for command in ("init -q", "-c user.name=a -c user.email=a@b commit -q --allow-empty -m first"):
        subprocess.run(["git", *command.split()], cwd=tmp_path / "project", check=True)
    path = tmp_path / "project" / ".git" / "hooks" / hook
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\ntouch {tmp_path}/mark\n")
    path.chmod(0o755)
    subprocess.run(["git", "config", "core.fsmonitor", str(path)], cwd=tmp_path / "project", check=True)
    commit, _ = code_state.code_state()
    (tmp_path / "mark").unlink(missing_ok=True)
    with code_state.checkout(commit, b""):
        pass
    assert not (tmp_path / "mark").exists()


def listening(pid: int) -> set[str]:
    """Addresses on which a process and what it started listen."""
    found = set()
    for process in psutil.Process(pid).children(recursive=True):
        try:
            connections = process.net_connections("tcp")
        except psutil.Error:  # it has ended
            continue
        found |= {each.laddr.ip for each in connections if each.status == psutil.CONN_LISTEN}
    return found


@pytest.mark.processes
@pytest.mark.parametrize("launcher", ["spawn", tail("torchrun")])  # which tests/launchers/test_torchrun.py looks at
def test_a_run_on_one_machine_listens_on_loopback_only(tmp_path, launcher):
    two = ("parallel=ddp", "launcher.nproc_per_node=2", f"launcher={launcher}", "trainer.max_steps=null")
    overrides = (*FAST, *two, "trainer.epochs=1000", f"hydra.run.dir={tmp_path / 'run'}")
    process = subprocess.Popen([sys.executable, str(RUN), *overrides], cwd=tmp_path, stdout=subprocess.DEVNULL)
    seen: set[str] = set()
    try:
        steps, end = tmp_path / "run" / "steps.csv", time.monotonic() + 90
        while not (steps.exists() and steps.read_text().count("\n") > 2) and time.monotonic() < end:
            seen |= listening(process.pid)
            time.sleep(0.05)
        seen |= listening(process.pid)
    finally:
        process.terminate()
        process.wait(30)
    assert seen == {"127.0.0.1"}
