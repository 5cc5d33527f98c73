"""launcher=torchrun: what is its own; what it shares with the others is tested with those."""

import getpass
import os
import signal
from pathlib import Path

import psutil
import pytest

from manyheads.launchers.launch import launch, prepare
from manyheads.runner.errors import RunFailed
from tests.launchers.conftest import descendants, freeze, is_rank, survivors

DDP = ("parallel=ddp", "launcher=torchrun")
ENDLESS = (*DDP, "trainer.epochs=1000")
FAULTY = ("model=custom", "model._target_=faulty.Faulty", "data.batch_size=48", "+model.rank=1", "+model.step=20")


def agent(pid: int) -> psutil.Process:
    """The one below ``pid`` that is torchrun's agent, by its command."""
    (found,) = [p for p in descendants(pid) if "torch.distributed.run" in p.cmdline()]
    return found


@pytest.mark.tail
@pytest.mark.processes
def test_killed_agent_takes_its_ranks_along(tmp_path: Path, parent) -> None:
    running = parent(tmp_path, *ENDLESS, f"hydra.run.dir={tmp_path}")
    running.wait_for_step(10)
    below = descendants(agent(running.process.pid).pid)
    assert sum(is_rank(p, running.folder) for p in below) == 2
    agent(running.process.pid).kill()
    code, output = running.end()
    assert code == 1, output
    assert survivors(running.folder) == []
    assert psutil.wait_procs(below, timeout=5)[1] == []


@pytest.mark.tail
@pytest.mark.processes
@pytest.mark.parametrize(("how", "code"), [("os._exit", 9), ("kill", -signal.SIGKILL)])
def test_the_agent_says_which_rank_failed(tmp_path: Path, capfd, how: str, code: int) -> None:
    folder = freeze(tmp_path, *FAULTY, *DDP, f"+model.how={how}")
    with pytest.raises(RunFailed) as caught:
        launch(prepare(folder))
    assert (caught.value.failure.rank, caught.value.failure.exit_code) == (1, code)
    log = (folder.logs / "torchrun.log").read_text()
    assert f"exitcode  : {code} " in log
    assert "exitcode" not in "".join(capfd.readouterr())
    assert survivors(folder) == []


@pytest.mark.tail
@pytest.mark.processes
def test_agent_and_ranks_stand_apart(tmp_path: Path, parent) -> None:
    """All from the terminal, ranks from other machines too, as the agent's store."""
    running = parent(tmp_path, *ENDLESS, f"hydra.run.dir={tmp_path}")
    running.wait_for_step(10)
    below = running.ranks() + [agent(running.process.pid)]
    assert len({os.getpgid(p.pid) for p in below} - {os.getpgid(running.process.pid)}) == 3
    sockets = [c for p in below for c in p.net_connections("tcp") if c.status == psutil.CONN_LISTEN]
    assert {c.laddr.ip.removeprefix("::ffff:") for c in sockets} == {"127.0.0.1"}
    running.process.send_signal(signal.SIGTERM)
    assert running.end()[0] == 143


@pytest.mark.processes
@pytest.mark.tail
def test_nothing_of_the_agent_stays(tmp_path: Path, monkeypatch) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    monkeypatch.setattr("tempfile.tempdir", None)
    launch(prepare(freeze(tmp_path / "run", *DDP, "trainer.max_steps=2")))
    left = {path.name for path in scratch.iterdir()} - {f"torchinductor_{getpass.getuser()}"}  # torch's cache
    assert left == set()
