"""Replicas are killed at random, and nothing is lost: the run is the undisturbed one, with each sample counted once."""

import pytest
import torch

from tests.in_process import rows
from tests.parallel.replicated.runs import IF_TORCHFT, PACED, SAMPLES, assert_equal, replicated, undisturbed
from tests.tail import tail

pytestmark = [IF_TORCHFT, pytest.mark.processes]


@pytest.mark.parametrize(
    ("replicas", "epochs", "kills"), [tail(2, 40, 2, id="two"), tail(3, 160, 12, id="three, a dozen kills")]
)
def test_killed_at_random_it_is_the_undisturbed_run(tmp_path, replicas, epochs, kills):
    length = f"trainer.epochs={epochs}"
    alone = undisturbed(tmp_path / "alone", length)
    folder, killed = replicated(tmp_path / "killed", length, f"launcher.nproc_per_node={replicas}", kills=kills)
    assert killed == kills
    result = folder.read_result()
    assert len(result["restarts"]) >= kills
    assert result["samples_seen"] == SAMPLES * epochs
    assert_equal(alone, folder)


@pytest.mark.tail
@pytest.mark.parametrize(
    "precision",
    [
        ("precision=amp", "precision.dtype=float16", "precision.init_scale=1024"),
        ("precision=bf16",),
    ],
    ids=["fp16 with a scaler", "bf16"],
)
def test_in_half_precision_too(tmp_path, precision):
    """An update that the gradient scaler skips for one replica's sample is skipped by all, also by one that rejoins."""
    model = ("model=custom", "model._target_=tests.parallel.replicated.faults.Overflowing", "+model.width=2")
    length = (*PACED, *(model if "precision=amp" in precision else ()), "trainer.epochs=10", *precision)
    alone = undisturbed(tmp_path / "alone", *length)
    pace = "+data.seconds=0.02"
    folder, killed = replicated(tmp_path / "killed", *length, pace, "launcher.nproc_per_node=2", kills=2)
    assert killed == 2
    assert folder.read_result()["samples_seen"] == SAMPLES * 10
    before, after = (torch.load(run.last_checkpoint, weights_only=True) for run in (alone, folder))
    assert after["precision"] == before["precision"]
    if "precision=amp" in precision:
        assert after["precision"]["scale"] == 1.0  # halved in each epoch
    for name in ("step", "samples", "loss"):
        one, other = ([float(row[name]) for row in rows(run.steps)] for run in (alone, folder))
        assert other == pytest.approx(one, rel=0, abs=0.0 if name != "loss" else 0.05)
