"""What Horovod and its launchers read when they start: settings, machines, their own options."""

import json
from pathlib import Path

import pytest

from manyheads.launchers.launch import launch, prepare
from tests.launchers.conftest import freeze, rows

pytestmark = pytest.mark.processes
QUICK = ("trainer.max_steps=4", "trainer.log_every=1", "data.batch_size=48", "precision=fp64", "optimizer.lr=0.1")


@pytest.mark.tail
@pytest.mark.needs("horovod")
def test_settings_reach_horovod(tmp_path: Path) -> None:
    """Two names of this machine stand for two machines: each rank is the first on its own."""
    timeline = tmp_path / "timeline.json"
    settings = (
        f"parallel.timeline={timeline}",
        "parallel.fusion_threshold=0",
        "parallel.cycle_time=3.0",
        "launcher.hosts=[localhost:1,127.0.0.1:1]",
        "launcher.network_interface=lo",
        "launcher.start_timeout=60",
        "launcher.arguments=--verbose",
    )
    folder = freeze(tmp_path / "run", *QUICK, "parallel=horovod", *settings)
    alone = freeze(tmp_path / "alone", *QUICK)
    result = launch(prepare(folder))
    launch(prepare(alone))
    assert result["world_size"] == 2
    assert [float(row["loss"]) for row in rows(folder.steps)] == pytest.approx(
        [float(row["loss"]) for row in rows(alone.steps)], rel=1e-9
    )
    said = (folder.logs / "horovodrun.log").read_text()
    assert "HOROVOD_LOCAL_SIZE=1" in said  # what --verbose shows of each rank's command
    assert "HOROVOD_CROSS_RANK=1" in said
    events = json.loads(timeline.read_text().rstrip().rstrip(",").removesuffix("]") + "]")
    assert {"GLOO_ALLREDUCE"} <= {event.get("name") for event in events}


@pytest.mark.tail
@pytest.mark.needs("mpirun")
def test_mpirun_reads_a_hostfile(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("# this machine\nlocalhost slots=3\n")
    options = ("launcher=mpirun", f"launcher.hostfile={tmp_path / 'hosts'}", "launcher.arguments=--display-map")
    folder = freeze(tmp_path / "run", *QUICK, "parallel=ddp", *options)
    assert launch(prepare(folder))["world_size"] == 3
    assert "JOB MAP" in (folder.logs / "mpirun.log").read_text()
