"""How mpirun and horovodrun start ranks, and what they say of them; most tests start nothing."""

import os
import sys
from pathlib import Path

import pytest

from manyheads.launchers import horovodrun, mpirun
from manyheads.launchers.agent_program import VARIABLE
from manyheads.launchers.horovodrun import Horovodrun
from manyheads.launchers.launcher import Launcher
from manyheads.launchers.mpirun import Mpirun, own_session
from manyheads.runner.run.program import Program
from tests.launchers.agents import follows

EXITED = """\
--------------------------------------------------------------------------
Primary job  terminated normally, but 1 process returned
a non-zero exit code. Per user-direction, the job has been aborted.
--------------------------------------------------------------------------
--------------------------------------------------------------------------
mpirun detected that one or more processes exited with non-zero status, thus causing
the job to be terminated. The first process to do so was:

  Process name: [[31090,1],1]
  Exit code:    7
--------------------------------------------------------------------------
"""
KILLED = """\
--------------------------------------------------------------------------
mpirun noticed that process rank 11 with PID 0 on node vm exited on signal 9 (Killed).
--------------------------------------------------------------------------
"""
HOROVODRUN = """\
Process 1 exit with status code 1.
Terminating remaining workers after failure of Process 1.
Traceback (most recent call last):
  File "/venv/lib/python3.11/site-packages/horovod/runner/gloo_run.py", line 300, in launch_gloo
    raise RuntimeError('Horovod detected that one or more processes exited with non-zero '
RuntimeError: Horovod detected that one or more processes exited with non-zero status, thus causing the job to be \
terminated. The first process to do so was:
Process name: {rank}
Exit code: {code}
"""
OUTER = {
    **dict.fromkeys(("RANK", "LOCAL_RANK", "WORLD_SIZE"), "7"),
    **dict.fromkeys(("HOROVOD_RANK", "HOROVOD_LOCAL_RANK", "HOROVOD_SIZE", "HOROVOD_CONTROLLER"), "7"),
    **dict.fromkeys(("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "PMIX_RANK"), "7"),
}


@pytest.mark.parametrize(
    ("launcher", "text", "codes"),
    [
        (mpirun, "", {}),
        (mpirun, "some other message", {}),
        (mpirun, EXITED, {1: 7}),
        (mpirun, EXITED.replace("[[31090,1],1]", "[prterun-vm-147515@1,1]"), {1: 7}),  # Open MPI 5
        (mpirun, KILLED, {11: -9}),
        (mpirun, "warnings\n" + KILLED + "3 more processes", {11: -9}),
        (horovodrun, "", {}),
        (horovodrun, HOROVODRUN.format(rank=1, code=7), {1: 7}),
        (horovodrun, HOROVODRUN.format(rank=12, code=137), {1: 1, 12: -9}),
        (horovodrun, HOROVODRUN.format(rank=0, code=128), {0: 128, 1: 1}),
        (horovodrun, EXITED, {1: 7}),
        (horovodrun, KILLED, {11: -9}),
    ],
)
def test_failed_ranks_are_found_in_what_the_agent_says(launcher, text, codes):
    assert launcher.exit_codes(text) == codes


def launcher(kind: type[Launcher], *, ranks: int = 2, **options) -> Launcher:
    defaults = {"hosts": None, "hostfile": None, "arguments": None}
    if kind is Horovodrun:
        defaults |= {"controller": "gloo", "network_interface": None, "start_timeout": 120}
    return kind(
        name=kind.__name__.lower(), nproc_per_node=ranks, threads_per_rank=1, stall_timeout=600, **defaults | options
    )


@pytest.mark.parametrize("kind", [Mpirun, Horovodrun])
def test_an_agent_starts_the_worker_for_the_run_folder(started, tmp_path, kind):
    command, environment = started(launcher(kind, ranks=3))
    assert command[-4:] == [sys.executable, "-m", "manyheads.runner.loop.rank_main", str(tmp_path / "run")]
    assert follows(command, "-np") == ["3"]
    assert environment["OMP_NUM_THREADS"] == "3"
    assert (environment["MASTER_ADDR"], environment["MASTER_PORT"].isdigit()) == ("127.0.0.1", True)
    assert environment["PATH"] == os.environ["PATH"]


@pytest.mark.parametrize(("user", "flags"), [(0, 1), (1000, 0)])
def test_only_root_says_so_to_mpirun(started, monkeypatch, user, flags):
    monkeypatch.setattr(os, "geteuid", lambda: user)
    assert started(launcher(Mpirun))[0].count("--allow-run-as-root") == flags


@pytest.mark.parametrize(("ranks", "cores", "more"), [(2, 4, False), (4, 4, False), (5, 4, True)])
def test_more_ranks_than_cores_must_be_allowed(started, monkeypatch, ranks, cores, more):
    monkeypatch.setattr(mpirun, "cpu_cores", lambda: cores)
    assert ("--oversubscribe" in started(launcher(Mpirun, ranks=ranks))[0]) is more


def test_on_one_machine_everything_stays_on_the_loopback_interface(started):
    command, _ = started(launcher(Mpirun))
    for name in ("btl_tcp_if_include", "oob_tcp_if_include"):
        assert command[command.index(name) - 1 : command.index(name) + 2] == ["--mca", name, "lo"]
    assert follows(started(launcher(Horovodrun))[0], "--network-interfaces") == ["lo"]


@pytest.mark.parametrize("kind", [Mpirun, Horovodrun])
@pytest.mark.parametrize("listed", ["hosts", "hostfile"])
def test_this_machine_under_two_names(started, tmp_path, kind, listed):
    (tmp_path / "hosts").write_text("localhost slots=2\n127.0.0.1 slots=2\n")
    value = ["localhost:2", "127.0.0.1:2"] if listed == "hosts" else str(tmp_path / "hosts")
    command, environment = started(launcher(kind, **{listed: value}))
    assert follows(command, "-np") == ["4"]
    assert follows(command, "-H") == ["localhost:2,127.0.0.1:2"]
    assert environment["MASTER_ADDR"] == "127.0.0.1"


@pytest.mark.parametrize("kind", [Mpirun, Horovodrun])
def test_further_arguments_come_before_the_worker_as_a_shell_would_split_them(started, kind):
    command, _ = started(launcher(kind, arguments="--verbose --tag 'two words'"))
    at = command.index("manyheads.runner.loop.rank_main") - 2
    assert command[at - 3 : at] == ["--verbose", "--tag", "two words"]


@pytest.mark.parametrize(
    ("options", "name", "value"),
    [
        ({"start_timeout": 7}, "--start-timeout", ["7"]),
        ({"network_interface": "eth0"}, "--network-interfaces", ["eth0"]),
        ({"network_interface": "eth0", "hosts": ["localhost:2"]}, "--network-interfaces", ["eth0"]),
    ],
)
def test_options_of_horovodrun(started, options, name, value):
    assert follows(started(launcher(Horovodrun, **options))[0], name) == value


@pytest.mark.parametrize("controller", ["gloo", "mpi"])
def test_the_controller_of_horovodrun(started, controller):
    command, _ = started(launcher(Horovodrun, controller=controller))
    assert {"--gloo", "--mpi"} & set(command) == {f"--{controller}"}


def test_ranks_get_what_was_added_and_what_libraries_read(started, monkeypatch):
    for name in ("NCCL_DEBUG", "HOROVOD_CYCLE_TIME", "CUDA_VISIBLE_DEVICES", "SECRET", "XPATH"):
        monkeypatch.setenv(name, "0")
    command, environment = started(launcher(Mpirun))
    exported = follows(command, "-x")
    assert exported == sorted(set(exported))
    added = {"OMP_NUM_THREADS", "PYTHONPATH", "MASTER_ADDR", "MASTER_PORT", VARIABLE}
    assert added | {"NCCL_DEBUG", "HOROVOD_CYCLE_TIME", "CUDA_VISIBLE_DEVICES", "PATH"} <= set(exported)
    assert not {"SECRET", "XPATH"} & set(exported)
    assert set(exported) <= set(environment)


@pytest.mark.parametrize("kind", [Mpirun, Horovodrun])
def test_an_outer_launchers_place_is_not_passed_on(started, monkeypatch, kind):
    for name, value in OUTER.items():
        monkeypatch.setenv(name, value)
    command, environment = started(launcher(kind))
    assert not set(OUTER) & set(environment)
    assert not set(OUTER) & set(follows(command, "-x"))


@pytest.mark.processes
@pytest.mark.needs("horovod")
def test_horovodrun_shows_no_secret_in_the_list_of_processes(tmp_path):
    """Its ranks get the variables all the same."""
    script = tmp_path / "rank.sh"
    script.write_text("tr '\\0' ' ' < /proc/$PPID/cmdline\necho\nenv\n")
    arguments = ["THREADS", "-np", "1", "--gloo", "--network-interfaces", "lo", "sh", str(script)]
    environment = {**os.environ, "WANDB_API_KEY": "abc123", "THREADS": "four"}
    done = Program([sys.executable, "-c", horovodrun.PROGRAM, *arguments], environment).ask(seconds=120)
    shown = next(line for line in done.text.splitlines() if "HOROVOD_RANK=0" in line)
    assert ("THREADS=four" in shown, "abc123" in shown) == (True, False), done
    assert "WANDB_API_KEY=abc123" in done.text


@pytest.mark.parametrize("kind", [Mpirun, Horovodrun])
def test_open_mpi_uses_no_folder_that_another_user_can_create_first(started, kind):
    _, environment = started(launcher(kind))
    (own,) = {environment[f"{name}_tmpdir_base"] for name in ("OMPI_MCA_orte", "PRTE_MCA_prte")}
    assert Path(own).name.startswith("manyheads-")


@pytest.mark.processes
@pytest.mark.needs("mpirun")
def test_ranks_of_open_mpi_join_with_a_session_folder_of_their_own():
    """Its settings come from mpirun and from the environment, and those of a rank must not contradict each other."""
    joined = (
        "import os; from ctypes import *; code = CDLL('libmpi.so.40', RTLD_GLOBAL).MPI_Init(None, None); "
        "found = {line.split()[-1] for line in open('/proc/self/maps') if 'vader_segment' in line}; "
        "os.write(1, ' '.join([str(code), *found, chr(10)]).encode())"  # at once: the ranks' lines could mix
    )
    options = ["--allow-run-as-root", "--oversubscribe", "--mca", "btl_tcp_if_include", "lo", "-np", "2"]
    with own_session() as session:
        done = Program(["mpirun", *options, sys.executable, "-c", joined], {**os.environ, **session}).ask(seconds=60)
        own = session["OMPI_MCA_btl_vader_backing_directory"]
    found = done.text.split()
    assert found.count("0") == 2, done
    assert all(each.startswith(own) for each in found if each != "0"), done
