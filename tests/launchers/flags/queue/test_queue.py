"""The queue by real commands and real runs."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from manyheads.launchers.flags.queue.entries import status_of
from manyheads.runner.errors import ExitCode
from manyheads.runner.run.run_folder import RunFolder
from tests.conftest import RUN, Done, execute
from tests.launchers.flags.queue.conftest import in_queue
from tests.optional_wings import require_wing

pytestmark = [pytest.mark.processes, pytest.mark.ci]
NET = """
import os
import time
from pathlib import Path

from torch import nn

FAULT = Path(__file__).with_name("fault")  # a signal for the worker, this rank's grandparent or parent


class Net(nn.Linear):
    def __init__(self, num_inputs: int, num_classes: int):
        super().__init__(num_inputs, num_classes)
        self.updates = 0

    def forward(self, samples):
        self.updates += self.training
        if FAULT.exists() and self.updates == 8:
            number = int(FAULT.read_text())
            FAULT.unlink()
            if number < 0:
                raise RuntimeError("as the fault says")
            os.kill(os.getppid(), number)
            time.sleep(5)
        return super().forward(samples)
"""
WORDS = (
    *("model=net.py:Net", "data=table", "data.root=table.csv", "data.target=label", "data.batch_size=8"),
    *("trainer.epochs=4", "trainer.device=cpu", "parallel=single", "launcher=inline", "launcher.threads_per_rank=1"),
    *("checkpoint.every=1", "logger=[]", "trainer.log_every=1"),
)


class Shop:
    """A folder with code and data, in which runs are queued. ``fault``: what the next run does in its 8th update."""

    def __init__(self, folder: Path):
        self.folder, self.fault, self.net = folder, folder / "fault", folder / "net.py"
        self.net.write_text(NET)
        rows = (f"{number % 7},{number % 5},{'no' if number % 7 < number % 5 else 'yes'}" for number in range(40))
        (folder / "table.csv").write_text("\n".join(("one,other,label", *rows)) + "\n")

    def queue(self, name: str, *words: str) -> RunFolder:
        done = execute(
            sys.executable, str(RUN), "--queue", *WORDS, *words, f"hydra.run.dir=outputs/{name}", cwd=self.folder
        )
        assert done.code == 0, done.err
        return RunFolder(self.folder / "outputs" / name)

    def manyheads(self, *words: str) -> Done:
        return execute(sys.executable, "-m", "manyheads.runner", *words, cwd=self.folder)

    def work(self) -> Done:
        return self.manyheads("work", "--until-empty", "--json")


@pytest.fixture
def shop(desk: Path) -> Shop:
    return Shop(desk)


def weights(run: RunFolder) -> str:
    return str((run.read_result() or {})["weights_sha256"])


def test_in_the_order_of_the_queue_and_a_failure_is_not_tried_again(shop):
    shop.queue("first")
    second = shop.queue("second")
    shop.manyheads("queue", "--first", str(second))
    shop.fault.write_text("-1")
    done = shop.work()
    ended = [(one["folder"], one["status"]) for one in json.loads(done.out)["result"]["runs"]]
    assert (done.code, ended) == (ExitCode.FAILED, [("outputs/second", "failed"), ("outputs/first", "completed")])
    assert "as the fault says" in (second.read_result() or {})["error"]["message"]
    assert in_queue() == []


def test_a_run_whose_worker_is_killed_is_resumed_by_the_next_one_bit_identically(shop):
    run, undisturbed = shop.queue("run"), shop.queue("undisturbed")
    shop.fault.write_text(str(int(signal.SIGKILL)))
    assert shop.manyheads("work").code == -signal.SIGKILL
    assert in_queue() == ["run", "undisturbed"]
    assert run.last_checkpoint.exists()
    done = shop.work()
    assert [one["status"] for one in json.loads(done.out)["result"]["runs"]] == ["completed"] * 2
    assert "resuming from" in run.log.read_text() + done.err
    assert weights(run) == weights(undisturbed)
    with run.steps.open() as file:
        steps = [int(row["step"]) for row in csv.DictReader(file)]
    assert steps == sorted({*steps})


def test_a_worker_that_is_told_to_stop_leaves_its_run_in_the_queue_with_a_checkpoint(shop):
    run = shop.queue("run")
    shop.fault.write_text(str(int(signal.SIGTERM)))
    done = shop.manyheads("work", "--json")
    answer = json.loads(done.out)
    assert (done.code, answer["result"]["runs"]) == (
        ExitCode.TERMINATED,
        [{"folder": "outputs/run", "status": "queued"}],
    )
    result = run.read_result() or {}
    assert (result["status"], in_queue()) == ("queued", ["run"])
    assert 0 < result["steps"] < 20
    assert run.last_checkpoint.exists()
    assert "outputs/run" in shop.manyheads("list", "status=queued").out
    assert "queued" in shop.manyheads("show", "outputs/run").out
    assert "outputs/run stays: it is in the queue" in shop.manyheads("clean", "--older", "0h", "--yes").out
    assert run.last_checkpoint.exists()


def test_what_was_frozen_is_run_even_if_its_code_has_changed_since(shop):
    run = shop.queue("run")
    shop.net.write_text("raise RuntimeError('another version')\n")
    done = shop.work()
    assert status_of(run) == "completed", done.err
    assert "net.py has changed since the run: its copy" in done.err


def test_a_run_that_is_cancelled_while_it_runs_stops_with_a_checkpoint(shop):
    run = shop.queue("run", "trainer.epochs=100000")
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "manyheads.runner", "work", "--until-empty"]
    with subprocess.Popen(command, cwd=shop.folder, env=environment, stdout=subprocess.DEVNULL) as worker:
        while not run.last_checkpoint.exists():
            assert worker.poll() is None
            time.sleep(0.1)
        (row,) = json.loads(shop.manyheads("queue", "--json").out)["result"]["runs"]
        assert (row["position"], row["folder"], len(row["devices"])) == (None, "outputs/run", 1)
        assert psutil.Process(row["pid"]).ppid() == worker.pid
        shop.manyheads("queue", "--cancel", "outputs/run")
        assert worker.wait(60) == 0
    assert (status_of(run), in_queue()) == ("interrupted", [])


def test_an_equal_run_is_not_started_while_one_is_queued(shop):
    require_wing("manyheads.launchers.flags.once")
    shop.queue("run")
    done = execute(sys.executable, str(RUN), "--once", *WORDS, "--wait", "0", cwd=shop.folder)
    assert done.code == ExitCode.EXPIRED, done.err
    assert "outputs/run" in done.err
