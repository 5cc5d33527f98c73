"""What every rank finds in its environment."""

import os
import pwd
from pathlib import Path

import pytest

from manyheads.launchers.causes import recorded
from manyheads.launchers.companions import flight_recorder
from manyheads.launchers.environment import environment
from manyheads.launchers.inline import Inline
from manyheads.runner.errors import warn
from manyheads.runner.run import scratch
from manyheads.runner.run.run_folder import RunFolder
from tests.in_process import config


def found(**options) -> dict[str, str]:
    settings = {"nproc_per_node": 1, "threads_per_rank": 2, "stall_timeout": 9.0, **options}
    return environment(Inline(name="inline", **settings))


@pytest.mark.parametrize(("own", "expected"), [(None, "PCI_BUS_ID"), ("FASTEST_FIRST", "FASTEST_FIRST")])
def test_cuda_counts_gpus_as_the_driver_does(monkeypatch, own, expected):
    """Or on a machine with several kinds gpu.csv and a sweep's jobs would mean others."""
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    if own:
        monkeypatch.setenv("CUDA_DEVICE_ORDER", own)
    assert found()["CUDA_DEVICE_ORDER"] == expected


def test_a_home_that_has_no_variable_is_named(monkeypatch):
    """Open MPI looks for no other: tests/trust/test_attacks_by_working_directory.py."""
    monkeypatch.setenv("HOME", "/home/me")
    assert "HOME" not in found()
    monkeypatch.delenv("HOME")
    assert found()["HOME"] == pwd.getpwuid(os.getuid()).pw_dir


def is_fresh(folder: str) -> bool:
    """Whether only this user can enter it, and nobody else can have created it first."""
    path = Path(folder)
    return path.is_relative_to(scratch.of_process()) and path.stat().st_mode & 0o777 == 0o700 and not [*path.iterdir()]


@pytest.mark.parametrize("home", [None, "relative"])
def test_without_a_home_a_fresh_folder_takes_its_place(tmp_path, monkeypatch, capsys, home):
    """Each library would take the folder ~ of the working directory for it, or one in /tmp."""

    def unknown(uid: int) -> None:
        raise KeyError(uid)

    warn.cache_clear()
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.delenv("HOME") if home is None else monkeypatch.setenv("HOME", home)
    for name in ("XDG_CACHE_HOME", "TORCHINDUCTOR_CACHE_DIR"):  # torch sets the second in a process that has compiled
        monkeypatch.delenv(name, raising=False)
    variables = found()
    assert variables == found()
    assert is_fresh(variables["HOME"])
    assert is_fresh(variables["TORCHINDUCTOR_CACHE_DIR"])
    assert capsys.readouterr().err.startswith("warning: you have no home folder; libraries keep their settings and ")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert found()["TORCHINDUCTOR_CACHE_DIR"] == f"{tmp_path}/manyheads/torchinductor"
    assert is_fresh(found()["HOME"])


@pytest.mark.parametrize("variable", ["HOME", "XDG_CACHE_HOME", "TORCHINDUCTOR_CACHE_DIR"])
def test_where_the_cache_cannot_be_written_a_fresh_folder_takes_its_place(tmp_path, monkeypatch, capsys, variable):
    warn.cache_clear()
    for name in ("XDG_CACHE_HOME", "TORCHINDUCTOR_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "file").touch()  # for root, too, not a folder
    monkeypatch.setenv(variable, str(tmp_path / "file"))
    variables = found()
    assert is_fresh(variables["TORCHINDUCTOR_CACHE_DIR"])
    assert "HOME" not in variables
    assert capsys.readouterr().err.startswith(f"warning: {tmp_path}/file")


@pytest.mark.parametrize(
    ("policy", "own", "expected"),
    [
        ("default", {}, {}),
        ("default", {"OMP_WAIT_POLICY": "passive"}, {}),
        ("brief", {}, {"GOMP_SPINCOUNT": "100"}),
        ("passive", {}, {"OMP_WAIT_POLICY": "passive"}),
        ("active", {"GOMP_SPINCOUNT": "7"}, {"OMP_WAIT_POLICY": "active"}),
        ("brief", {"OMP_WAIT_POLICY": "ACTIVE"}, {}),
        ("brief", {"GOMP_SPINCOUNT": "7"}, {}),
    ],
)
def test_threads_wait_as_the_launcher_says(monkeypatch, policy, own, expected):
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    variables = found(wait_policy=policy)
    assert {name: variables[name] for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT") if name in variables} == expected


@pytest.mark.parametrize("overrides", [(), ("parallel=ddp",), ("parallel=ddp", "launcher=torchrun")])
def test_by_default_threads_wait_as_in_a_script_without_a_launcher(monkeypatch, overrides):
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.delenv(name, raising=False)
    launcher = config(*overrides)["launcher"]
    keys = ("nproc_per_node", "threads_per_rank", "stall_timeout", "wait_policy")
    variables = found(**{key: launcher[key] for key in keys})
    assert not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & variables.keys()


def test_what_nccl_did_last_is_kept_with_the_run_and_named_by_the_error(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.logs.mkdir(parents=True)
    variables = flight_recorder.variables(folder)
    assert recorded(folder) == ""
    for rank in range(2):
        Path(variables["TORCH_FR_DUMP_TEMP_FILE"] + str(rank)).touch()
    assert recorded(folder) == f" NCCL's last calls: {folder.logs}/nccl_rank_0 and others."
    folder.clear_attempt()
    assert recorded(folder) == ""
