"""Surroundings that a shell, a container or a network may leave: closed streams, and a name that nothing resolves."""

import shlex
import subprocess
import sys
from itertools import product

import pytest

from tests.conftest import FAST, RUN
from tests.launchers.conftest import LAUNCHERS, by
from tests.tail import tailed

TYPED = (sys.executable, str(RUN), *FAST, "data=synthetic", "data.image_size=8", "data.train_samples=64")


@pytest.mark.processes
@pytest.mark.parametrize(
    ("way", "closed"),
    tailed(product(map(by, LAUNCHERS), ["1", "2", "0,1,2"]), always=[(by("spawn"), "0,1,2")]),
    ids=str,
)
def test_a_run_completes_without_the_streams_that_are_closed(tmp_path, way, closed):
    closing = " ".join(f"{number}>&-" for number in closed.split(","))
    typed = shlex.join([*TYPED, *way, f"hydra.run.dir={tmp_path / 'run'}"])
    assert subprocess.run(["bash", "-c", f"exec {typed} {closing}"], cwd=tmp_path, timeout=200).returncode == 0
    assert '"completed"' in (tmp_path / "run" / "result.json").read_text()


@pytest.mark.processes
@pytest.mark.needs("create network namespaces", "horovod")
def test_a_name_that_nothing_resolves_is_refused_where_horovod_would_die_of_it(tmp_path):
    named = "hostname no-such-host.invalid && exec " + shlex.join([*TYPED, "parallel=horovod", "launcher=horovodrun"])
    done = subprocess.run(
        ["unshare", "--uts", "bash", "-c", named], cwd=tmp_path, timeout=200, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "no-such-host.invalid cannot be resolved here: " in done.stderr.strip().splitlines()[-1]
