"""Steps on several ranks: the same losses as on one, under every strategy that carries them."""

import sys

import pytest

from manyheads.launchers.launch import launch, prepare
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.run_folder import RunFolder
from tests.conftest import execute
from tests.in_process import config, rows, train
from tests.loop.own_step.configs import CONTRASTIVE, CROSSED, TASKS, TRIPLETS

pytestmark = [pytest.mark.processes, pytest.mark.ci]
EXACT = ("precision=fp64", "trainer.max_steps=4")


@pytest.mark.parametrize("task", [CONTRASTIVE, TRIPLETS], ids=["contrastive", "triplets"])
def test_a_loss_over_the_global_batch_does_not_depend_on_the_ranks(tmp_path, task):
    alone = train(tmp_path / "alone", config(*task, *EXACT)).folder
    folder = RunFolder(tmp_path / "two")
    folder.write_config(config(*task, *EXACT, "parallel=ddp", "launcher.nproc_per_node=2"))
    launch(prepare(folder))
    one, two = ([float(row["loss"]) for row in rows(run.steps)] for run in (alone, folder))
    assert two == pytest.approx(one, rel=1e-12)


@pytest.mark.parametrize(
    ("name", "strategies"), [("gan", "ddp,fsdp"), ("distillation", "ddp,fsdp,zero1"), ("byol", "ddp,fsdp,zero1")]
)
def test_strategies_are_equal(tmp_path, name, strategies):
    ranks = (f"parallel={strategies}", "launcher.nproc_per_node=2", "trainer.grad_accumulation=2", "--steps", "3")
    command = (sys.executable, "-m", "manyheads.runner", "parity", *TASKS[name], "precision=fp64", *ranks)
    done = execute(*command, cwd=tmp_path)
    assert done.code == 0, done.out + done.err
    assert f"equal: {strategies.replace(',', ', ')} and single" in done.out


def test_ranks_that_take_other_turns_end_the_run(tmp_path):
    """Else the gradients of one part would be averaged with those of another one of the same size."""
    folder = RunFolder(tmp_path)
    ranks = ("parallel=ddp", "launcher.nproc_per_node=2", "trainer.max_steps=3")
    folder.write_config(config(*CROSSED, *ranks))
    said = "task: ranks have computed with different weights: they use the same, but in another order"
    with pytest.raises(ConfigurationError, match=said):
        launch(prepare(folder))
