"""Where an epoch's time goes, with every strategy that there is on this machine."""

from pathlib import Path

import pytest

from manyheads.launchers.launch import launch, prepare
from manyheads.runner.config.lookup import options, read_option, unavailable
from manyheads.runner.option.declared import declared
from manyheads.runner.run.tables.columns import TRAINING
from tests import in_process
from tests.launchers.conftest import freeze
from tests.tail import tailed

STRATEGIES = [name for name in options("parallel") if name == "horovod" or unavailable("parallel", name) is None]


@pytest.mark.processes
@pytest.mark.parametrize("strategy", tailed(STRATEGIES, always={"ddp", "pipeline"} & {*STRATEGIES}))
def test_every_strategy_says_it_alike(tmp_path: Path, strategy: str) -> None:
    folder = freeze(tmp_path, f"parallel={strategy}", "trainer.epochs=2", "model.width=8", "trainer.device=cpu")
    launch(prepare(folder))
    time = folder.read_result()["time"]
    for row in in_process.rows(folder.epochs):
        assert sum(float(row[f"{part}_seconds"]) for part in TRAINING) == pytest.approx(float(row["train_seconds"]))
    assert min(time[part] for part in ("data", "compute", "optimizer", "logging", "evaluation", "checkpoint")) > 0
    option = declared("parallel", read_option("parallel", strategy))
    if not (option.one_process or option.mixes_communication):
        assert time["communication"] > 0
