"""SIGINT, SIGTERM and SIGHUP to the parent: all ranks stop after the same step, with a checkpoint."""

import os
import pty
import select
import signal
import sys
import time
from itertools import product
from pathlib import Path

import pytest
import torch

from manyheads.launchers.launch import launch, prepare
from manyheads.runner.run.run_folder import RunFolder
from tests.conftest import RUN
from tests.launchers.conftest import LAUNCHERS, by, freeze, rows, strategies, survivors
from tests.tail import tail, tailed

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 143}
WAYS = [
    *[by(launcher) for launcher in LAUNCHERS],
    *[(f"parallel={strategy}",) for strategy in strategies() if strategy != "ddp"],
    (*by("spawn"), "launcher.warm=false"),
    ("launcher=inline",),
]
STARTING = [by("spawn")]
LONG = ("trainer.epochs=1000", "trainer.log_every=4", "data.batch_size=48")


@pytest.mark.processes
@pytest.mark.parametrize(
    ("way", "signum"),
    tailed(
        [
            *product(WAYS, [signal.SIGINT]),
            *product([by(name) for name in LAUNCHERS if name in ("spawn", "horovodrun")], [signal.SIGTERM]),
            *product([*map(by, LAUNCHERS), ("launcher=inline",)], [signal.SIGHUP]),
        ],
        always=[(by("spawn"), signal.SIGINT), (("launcher=inline",), signal.SIGHUP)],
    ),
    ids=str,
)
def test_stops_with_a_checkpoint(tmp_path: Path, parent, way: tuple[str, ...], signum: signal.Signals) -> None:
    running = parent(tmp_path, *way, *LONG, f"hydra.run.dir={tmp_path}")
    running.wait_for_step(8)
    running.process.send_signal(signum)
    code, output = running.end()
    assert code == CODES[signum], output
    assert "Traceback" not in output
    result = running.folder.read_result()
    assert result["status"] == "interrupted"
    assert 128 + result["signal"] == CODES[signum]
    checkpoint = torch.load(running.folder.last_checkpoint, weights_only=True)
    assert checkpoint["progress"]["step"] == result["steps"] == int(rows(running.folder.steps)[-1]["step"])
    assert "python -m runner resume" in output
    assert survivors(running.folder) == []


@pytest.mark.processes
@pytest.mark.tail
@pytest.mark.parametrize("way", [*map(by, LAUNCHERS), ("launcher=inline",)], ids=" ".join)
def test_below_nohup_a_closed_terminal_stops_nothing(tmp_path: Path, parent, way: tuple[str, ...]) -> None:
    running = parent(tmp_path, *way, *LONG, f"hydra.run.dir={tmp_path}", under=("nohup",))
    running.wait_for_step(8)
    running.process.send_signal(signal.SIGHUP)
    running.wait_for_step(24)
    running.process.send_signal(signal.SIGINT)
    assert running.end()[0] == 130
    assert running.folder.read_result()["signal"] == signal.SIGINT


@pytest.mark.processes
@pytest.mark.tail
@pytest.mark.parametrize("way", [by("spawn"), by("torchrun"), ("launcher=inline",)], ids=" ".join)
def test_a_terminal_that_is_closed_costs_no_update(tmp_path: Path, way: tuple[str, ...]) -> None:
    """As where a connection drops: whatever is printed from then on fails."""
    folder = RunFolder(tmp_path)
    process, terminal = pty.fork()
    if process == 0:
        os.execv(sys.executable, [sys.executable, str(RUN), *way, *LONG, f"hydra.run.dir={tmp_path}"])
    deadline = time.monotonic() + 100
    while not (folder.steps.exists() and len(rows(folder.steps)) > 2):
        assert time.monotonic() < deadline
        if select.select([terminal], [], [], 0.1)[0]:
            os.read(terminal, 65536)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 143
    assert folder.read_result()["status"] == "interrupted"
    checkpoint = torch.load(folder.last_checkpoint, weights_only=True)
    assert checkpoint["progress"]["step"] == folder.read_result()["steps"] >= 8
    assert survivors(folder) == []


@pytest.mark.processes
@pytest.mark.parametrize("launcher", tailed(["spawn", "inline"], always=[]))
def test_job_after_hears_signals_too(tmp_path: Path, parent, launcher: str) -> None:
    """The second job of a sweep is interrupted, and with it the sweep."""
    way = by(launcher) if launcher in LAUNCHERS else (f"launcher={launcher}",)
    overrides = (*way, "trainer.log_every=2", "trainer.evaluate_every=0")
    running = parent(
        tmp_path / "1",
        "-m",
        *overrides,
        "trainer.epochs=1,1000",
        f"hydra.sweep.dir={tmp_path}",
        "checkpoint.every=1epoch",
    )
    running.wait_for_step(4)
    running.process.send_signal(signal.SIGINT)
    code, output = running.end()
    assert code == 130, output
    assert (tmp_path / "0" / "result.json").exists()
    assert running.folder.read_result()["status"] == "interrupted"


@pytest.mark.processes
@pytest.mark.parametrize("way", [way if way == by("spawn") else tail(way) for way in WAYS[:-2]], ids=" ".join)
def test_second_signal_ends_at_once(tmp_path: Path, parent, way: tuple[str, ...]) -> None:
    """A rank that sleeps in the step can't stop after it."""
    sleeps = tmp_path / "sleeps"
    faulty = ("model=custom", "model._target_=faulty.Faulty", "+model.how=sleep", "+model.rank=1", "+model.step=10")
    running = parent(
        tmp_path / "run", *faulty, f"+model.once={sleeps}", *way, *LONG, f"hydra.run.dir={tmp_path / 'run'}"
    )
    running.wait_until(sleeps.exists)
    running.process.send_signal(signal.SIGINT)
    with pytest.raises(Exception, match="timed out"):
        running.end(seconds=2)
    running.process.send_signal(signal.SIGINT)
    code, output = running.end(seconds=10)
    assert code == 130, output
    assert running.folder.read_result()["status"] == "interrupted"
    assert survivors(running.folder) == []


@pytest.mark.tail
@pytest.mark.processes
def test_signal_to_a_rank_stops_all(tmp_path: Path, parent) -> None:
    """A cluster may signal the ranks themselves."""
    running = parent(tmp_path, "parallel=ddp", *LONG, f"hydra.run.dir={tmp_path}")
    running.wait_for_step(8)
    running.ranks()[0].send_signal(signal.SIGTERM)
    code, output = running.end()
    assert code == 143, output
    assert running.folder.read_result()["status"] == "interrupted"


@pytest.mark.processes
@pytest.mark.tail  # tests/launchers/test_resume.py resumes runs that were killed
def test_interrupted_run_goes_on(tmp_path: Path, parent) -> None:
    overrides = ("parallel=ddp", "trainer.epochs=15", "trainer.log_every=4", "data.batch_size=48", "model.width=8")
    undisturbed = freeze(tmp_path / "whole", *overrides)
    launch(prepare(undisturbed))
    running = parent(tmp_path / "cut", *overrides, f"hydra.run.dir={tmp_path / 'cut'}")
    running.wait_for_step(8)
    running.process.send_signal(signal.SIGTERM)
    assert running.end()[0] == 143
    launch(prepare(running.folder))
    assert running.folder.read_result()["weights_sha256"] == undisturbed.read_result()["weights_sha256"]
    assert rows(running.folder.steps) == rows(undisturbed.steps)
    assert rows(running.folder.epochs) == rows(undisturbed.epochs)


@pytest.mark.processes
@pytest.mark.parametrize("way", [way if way in STARTING else tail(way) for way in WAYS], ids=" ".join)
def test_ctrl_c_while_starting(tmp_path: Path, parent, way: tuple[str, ...]) -> None:
    """It reaches the whole process group of the terminal, and ends ranks that are still importing."""
    running = parent(tmp_path, *way, *LONG, f"hydra.run.dir={tmp_path}", cold=True)
    running.wait_until(running.folder.heartbeat.exists)
    os.killpg(running.process.pid, signal.SIGINT)
    code, output = running.end(seconds=60)
    assert code == 130, output
    assert "Traceback" not in output
    result = running.folder.read_result()
    assert (result["status"], result["steps"]) == ("interrupted", 0)
    assert survivors(running.folder) == []


@pytest.mark.processes
@pytest.mark.parametrize(
    "way", [("launcher=inline",), by("spawn"), tail(by("torchrun"))], ids=["inline", "spawn", "torchrun"]
)
def test_a_pool_of_the_data_set_that_ends_its_processes_ends_no_run(tmp_path: Path, run_command, way) -> None:
    data = ("data=custom", "data._target_=tests.data.own_sets.Pooled", "data.batch_size=16", "data.num_workers=0")
    given = (
        "model=mlp",
        "model.num_inputs=8",
        "trainer.epochs=1",
        "trainer.device=cpu",
        f"hydra.run.dir={tmp_path / 'run'}",
    )
    done = run_command(*data, *given, *way, cwd=Path(__file__).parents[2])
    assert done.code == 0, f"{done}"
    assert RunFolder(tmp_path / "run").read_result()["status"] == "completed"
