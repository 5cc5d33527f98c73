"""A command that is forked from the zygote does what it does in a new Python."""

import re
import sys

import pytest

from manyheads.runner.run.run_folder import RunFolder
from tests.conftest import FAST, RUN, execute
from tests.in_process import TIMINGS, rows


@pytest.mark.slow
def test_a_fork_does_what_a_new_python_does(finished_run, tmp_path):
    cold = RunFolder(tmp_path / "run")
    done = execute(sys.executable, str(RUN), *FAST, f"hydra.run.dir={cold.path}", cwd=tmp_path, cold=True)
    assert done.code == 0, done.err
    assert cold.read_config() == finished_run.read_config()
    one, other = cold.read_result(), finished_run.read_result()
    assert one["weights_sha256"] == other["weights_sha256"]
    assert one.keys() == other.keys()
    assert rows(cold.steps, without=TIMINGS) == rows(finished_run.steps, without=TIMINGS)
    assert names(cold) == names(finished_run)


def names(folder: RunFolder) -> list[str]:
    """The run's files but crowding's, which a busy machine writes. TensorBoard's name has time, host and process."""
    paths = (path.relative_to(folder.path) for path in folder.path.rglob("*"))
    return sorted(re.sub(r"tfevents\..*", "tfevents", str(path)) for path in paths if path.name != folder.crowding.name)
