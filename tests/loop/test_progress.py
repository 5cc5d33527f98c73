"""How far a run has come."""

import torch

from manyheads.runner.loop.meter import Sums
from manyheads.runner.loop.progress import Progress


def test_it_survives_a_checkpoint(tmp_path):
    progress = Progress(
        epoch=2,
        epoch_step=3,
        step=13,
        samples=104,
        interval=Sums(loss=1.0, count=2.0),
        sums=Sums(loss=0.1 + 0.2),
        metrics={"val_loss": None},
        best={"epoch": 1},
    )
    torch.save(progress.state_dict(), tmp_path / "progress.pt")
    assert Progress.from_state(torch.load(tmp_path / "progress.pt", weights_only=True)) == progress


def test_an_epoch_s_end():
    sums = Sums(loss=1.0, seconds=4.0, data_seconds=1.0)  # of two ranks
    progress = Progress(epoch=1, epoch_step=5, step=10, started=3.0, seconds=2.0, checkpoint_seconds=0.5, sums=sums)
    progress.end_epoch(2.0, evaluation=0.25)
    spent = {"data": 0.5, "compute": 1.5, "communication": 0.0, "optimizer": 0.0, "logging": 0.0}
    spent |= {"evaluation": 0.25, "checkpoint": 0.5}
    assert progress == Progress(epoch=2, step=10, train_seconds=2.0, spent=spent)
    assert progress.time(0.0) == spent


def test_the_throughput_leaves_out_the_warm_up_unless_there_is_nothing_else():
    assert Progress().samples_per_second is None
    assert Progress(samples=10, train_seconds=4.0, seconds=1.0).samples_per_second == 2.0
    timed = Progress(samples=1000, train_seconds=500.0, timed_samples=30.0, timed_seconds=3.0)
    assert timed.samples_per_second == 10.0
