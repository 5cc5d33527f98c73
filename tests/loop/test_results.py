"""The best weights on the test samples, also where no rank has the whole model."""

import pytest

from manyheads.launchers.launch import launch, prepare
from manyheads.runner.run.run_folder import RunFolder
from tests.in_process import small
from tests.torch_versions import from_torch

SETTINGS = ("trainer.test=true", "data.val_fraction=0.25", "precision=fp64", "trainer.epochs=2")


@pytest.mark.processes
@from_torch("2.7")
def test_it_is_the_same_for_ranks_that_share_a_model(tmp_path):
    found = []
    for name, more in {"alone": (), "shared": ("parallel=fsdp", "launcher.nproc_per_node=2")}.items():
        folder = RunFolder(tmp_path / name)
        folder.path.mkdir()
        folder.write_config(small(*SETTINGS, *more))
        launch(prepare(folder))
        result = folder.read_result()
        found.append((result["test"]["test_loss"], result["metrics"]["val_loss"]))
    assert found[1] == pytest.approx(found[0], rel=1e-9)
