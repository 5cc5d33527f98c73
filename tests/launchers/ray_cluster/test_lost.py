"""A machine of a Ray cluster is gone during a run: it is waited for, or the run ends with an error that says so."""

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from manyheads.runner.run.run_folder import RunFolder
from tests.launchers.conftest import PROJECT, rows
from tests.launchers.ray_cluster.cluster import fill, lose_a_node
from tests.launchers.ray_cluster.conftest import LONG, left, on

pytestmark = [pytest.mark.processes, pytest.mark.tail, pytest.mark.filterwarnings("ignore")]


class Begun:
    """A real `python run.py` whose output can be read while it runs."""

    def __init__(self, where: Path, *overrides: str):
        self.folder, self._output = RunFolder(where / "run"), where / "output"
        with open(self._output, "wb") as file:
            command = [sys.executable, str(PROJECT / "run.py"), *overrides, f"hydra.run.dir={self.folder.path}"]
            command.append("launcher.threads_per_rank=1")
            self.process = subprocess.Popen(command, stdout=file, stderr=file, start_new_session=True)

    def said(self) -> str:
        return self._output.read_text()

    def wait_for_step(self, step: int) -> None:
        self.wait_until(lambda: self.folder.steps.exists() and int(rows(self.folder.steps)[-1]["step"]) >= step)

    def wait_until(self, condition: Callable[[], bool], seconds: float = 90) -> None:
        deadline = time.monotonic() + seconds
        while True:
            with suppress(IndexError, ValueError):  # a table whose first row is being written
                if condition():
                    return
            assert self.process.poll() is None, self.said()
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.05)


@pytest.fixture
def begun(machines: Any, tmp_path: Path) -> Iterator[Callable[..., Begun]]:
    """Starts such runs; afterwards the cluster has both nodes again."""
    started: list[Begun] = []

    def start(*overrides: str) -> Begun:
        started.append(Begun(tmp_path, *LONG, *on(machines, *overrides)))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.wait()
    fill(machines, nodes=2)


def test_a_machine_that_is_gone_is_waited_for(machines, undisturbed, begun):
    run = begun("launcher.max_restarts=1", "launcher.placement_timeout=120")
    run.wait_for_step(50)
    lose_a_node(machines)
    run.wait_until(lambda: "waiting for Ray: no room for 2 x" in run.said())
    fill(machines, nodes=2)
    assert run.process.wait(240) == 0, run.said()
    result = run.folder.read_result()
    (restart,) = result["restarts"]
    assert "NodeLost" in restart["cause"]
    assert result["weights_sha256"] == undisturbed[1]["weights_sha256"]
    assert left(run.folder, machines) == ([], 2, [])


@pytest.mark.parametrize(
    ("options", "error", "restarts"),
    [
        (("launcher.max_restarts=0",), r"machine bundle-\d .* failed first: NodeLost: .*", 0),
        (
            ("launcher.max_restarts=1", "launcher.placement_timeout=3"),
            r"NotStarted: no room for 2 x .* \(waited for launcher.placement_timeout=3 seconds\)",
            1,
        ),
        (("launcher.max_restarts=1", "launcher.timeout=1.5"), r"TimedOut: .* launcher.timeout=1.5 minutes", 1),
    ],
)
def test_a_machine_that_is_not_replaced_ends_the_run(machines, begun, options, error, restarts):
    run = begun(*options)
    run.wait_for_step(50)
    lose_a_node(machines)
    assert run.process.wait(150) == 1, run.said()
    assert re.search(f"error: .*{error}", run.said()), run.said()
    result = run.folder.read_result()
    assert result["status"] == "failed"
    assert result["error"]["message"] in run.said()
    assert len(result.get("restarts", [])) == restarts
    assert left(run.folder, machines) == ([], 1, [])
