"""The loop in docs/judge.md, as it is written there."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

pytestmark = [pytest.mark.processes, pytest.mark.slow, pytest.mark.tail, pytest.mark.timeout(1300)]


def test_a_program_keeps_what_helps_and_reverts_what_does_not(tmp_path):
    (loop,) = re.findall(r"^```bash\n(.*?)^```", (ROOT / "docs" / "judge.md").read_text(), re.DOTALL | re.MULTILINE)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    words = ["bash", "-c", loop]
    done = subprocess.run(
        words, cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=1250
    )
    said = [line for line in done.stdout.splitlines() if re.match("keep opt|revert opt|undecided: rev|stop", line)]
    assert said == ["keep optimizer.lr=0.05", "revert optimizer.lr=5"], done.stdout + done.stderr
    lines = [json.loads(line) for line in (tmp_path / "night.jsonl").read_text().splitlines()]
    assert [line["change"] for line in lines if "alpha" in line] == ["optimizer.lr=0.05", "optimizer.lr=5"]
    assert [line["verdict"] for line in lines if "verdict" in line] == ["keep", "discard"]
