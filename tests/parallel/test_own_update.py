"""A strategy that owns its update, shares a model between ranks, and communicates in evaluation."""

from pathlib import Path
from typing import Any

import pytest
import torch

from manyheads.launchers.launch import launch, prepare
from manyheads.runner.checkpoint.rank.checkpoints import CheckpointStore
from manyheads.runner.run.run_folder import RunFolder
from tests.in_process import rows, small, train

pytestmark = pytest.mark.processes
RUN = (
    *("model=custom", "model._target_=tests.parallel.split.Perceptron", "precision=fp64", "checkpoint.every=2"),
    *("trainer.max_steps=12", "trainer.epochs=1", "trainer.log_every=2", "trainer.grad_accumulation=2"),
    *("trainer.clip_norm=0.5", "data.val_samples=33"),  # of which the last batch is one rank's
)
SPLIT = ("parallel=ddp", "parallel._target_=tests.parallel.split.Split", "launcher.nproc_per_node=4")


def started(path: Path, *overrides: str) -> RunFolder:
    folder = RunFolder(path)
    path.mkdir()
    folder.write_config(small(*RUN, *SPLIT, *overrides))
    launch(prepare(folder))
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunFolder, RunFolder]:
    """The same run in one process, and split; both of twelve updates."""
    path = tmp_path_factory.mktemp("split")
    return train(path / "single", small(*RUN)).folder, started(path / "split")


def state(folder: RunFolder) -> dict[str, Any]:
    return torch.load(folder.last_checkpoint, weights_only=True)


def assert_equal(one: RunFolder, other: RunFolder) -> None:
    """To what rounding in fp64 leaves, in everything that a run writes down."""
    for table, names in {"steps": ("loss", "grad_norm", "samples"), "epochs": ("val_loss", "val_acc1")}.items():
        for name in names:
            before, after = ([float(row[name]) for row in rows(getattr(run, table))] for run in (one, other))
            assert before == pytest.approx(after, rel=1e-9)
    before, after = state(one), state(other)
    assert before["model"].keys() == after["model"].keys()
    for name, weight in before["model"].items():
        torch.testing.assert_close(weight, after["model"][name], rtol=1e-9, atol=1e-12)
    for index, moments in before["optimizer"]["state"].items():
        torch.testing.assert_close(moments, after["optimizer"]["state"][index], rtol=1e-9, atol=1e-12)


def test_it_gives_the_numbers_of_one_process(runs):
    assert_equal(*runs)
    single, split = (run.read_result() for run in runs)
    assert split["samples_seen"] == single["samples_seen"] == 96
    assert split["metrics"]["val_samples"] == single["metrics"]["val_samples"] == 33


def test_it_is_resumed_to_the_bit_and_one_process_resumes_from_it(runs, tmp_path):
    single, split = runs
    started(tmp_path / "resumed", "trainer.stop_after=6")
    config = RunFolder(tmp_path / "resumed").config
    config.write_text(config.read_text().replace("stop_after: 6", "stop_after: null"))
    assert launch(prepare(RunFolder(tmp_path / "resumed")))["weights_sha256"] == split.read_result()["weights_sha256"]
    begun = started(tmp_path / "begun", "trainer.stop_after=6")
    elsewhere = train(tmp_path / "single", small(*RUN, f"checkpoint.resume={begun.last_checkpoint}"))
    assert elsewhere.trainer.progress.step == 12
    torch.testing.assert_close(state(elsewhere.folder)["model"], state(single)["model"], rtol=1e-9, atol=1e-12)
    assert CheckpointStore(begun, every=0, keep=0).last() is not None
