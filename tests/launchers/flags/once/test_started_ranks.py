"""``--once`` in ranks that another launcher has started: rank 0 asks, and the others end with it."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import RUN
from tests.launchers.flags.once.desk import WORDS, Desk

pytestmark = [pytest.mark.processes, pytest.mark.ci]


def test_under_torchrun(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    words = [word for word in WORDS if not word.startswith(("parallel", "launcher=", "logger"))]
    torchrun = str(Path(sys.executable).with_name("torchrun"))
    command = [torchrun, "--standalone", "--nproc-per-node=2", str(RUN), "--once", "--wait", "1m", *words]
    for times in range(2):
        done = subprocess.run(command, cwd=desk.folder, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stdout + done.stderr
        assert ("is the same run: completed. Nothing was started." in done.stderr + done.stdout) == bool(times)
    assert len(desk.runs()) == 1
