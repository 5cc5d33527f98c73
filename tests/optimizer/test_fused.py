"""optimizer=fused_*: with the real Apex where there is a GPU for it, elsewhere with tests/apex_stand_in."""

import pytest
import torch

from manyheads.runner.config.lookup import options
from manyheads.runner.errors import ConfigurationError
from tests import apex_library
from tests.apex_library import small
from tests.in_process import attempt, rows, train
from tests.in_process import small as plain
from tests.tail import each_once

pytestmark = [pytest.mark.ci, pytest.mark.usefixtures("apex"), *apex_library.marks]

FUSED = [name for name in options("optimizer") if name.startswith("fused_")]
ON_HERE = f"trainer.device={apex_library.DEVICE}"
LR = {"fused_sgd": "0.05", "fused_adam": "0.01", "fused_lamb": "0.05", "fused_novograd": "0.5"}


def fused(name: str, *others: str) -> tuple[str, ...]:
    return (f"optimizer={name}", f"optimizer.lr={LR[name]}", *others)


@pytest.mark.parametrize("name", FUSED)
def test_it_trains(tmp_path, name):
    run = train(tmp_path, small(*fused(name)))
    assert type(run.trainer.update.optimizer).__module__.startswith("apex.optimizers")
    losses = [float(row["train_loss"]) for row in rows(run.folder.epochs)]
    assert losses[-1] < losses[0] - 0.05


@pytest.mark.parametrize(
    ("name", "own", "other"),
    [
        ("fused_sgd", [], ["optimizer=sgd"]),
        ("fused_sgd", ["optimizer.nesterov=true"], ["optimizer=sgd", "optimizer.nesterov=true"]),
        ("fused_adam", [], ["optimizer=adamw"]),
        ("fused_adam", ["optimizer.adam_w_mode=false"], ["optimizer=adam", "optimizer.weight_decay=0.01"]),
    ],
)
def test_it_computes_what_torch_s_own_does(tmp_path, name, own, other):
    run = train(tmp_path / "fused", small(*fused(name), *own))
    reference = train(tmp_path / "torch", plain(*other, f"optimizer.lr={LR[name]}", ON_HERE))
    for key, value in reference.state.weights().items():
        assert torch.allclose(run.state.weights()[key], value, rtol=1e-4, atol=1e-5), key


@pytest.mark.parametrize(("name", "level"), each_once(FUSED, ["O2", "O1"]))
def test_it_goes_together_with_precision_apex(tmp_path, name, level):
    overrides = (*fused(name), "precision=apex", f"precision.opt_level={level}", "trainer.max_steps=25")
    if (name, level) == ("fused_novograd", "O2"):
        with pytest.raises(ConfigurationError, match=r"^precision\.opt_level=O2: .* Set precision\.opt_level=O1"):
            small(*overrides)
        return
    run = train(tmp_path, small(*overrides))
    assert run.trainer.progress.step == 25


@pytest.mark.parametrize("name", FUSED)
def test_resumed_it_ends_with_the_same_bits(tmp_path, name):
    options = small(*fused(name), "checkpoint.every=1", "trainer.max_steps=14")
    whole, resumed = apex_library.ends(tmp_path, options, killed_after=7)
    assert resumed == whole


@pytest.mark.parametrize("name", FUSED)
def test_fp64_is_refused(name):
    with pytest.raises(ConfigurationError, match=rf"^optimizer={name}: Apex's kernels do not support fp64"):
        small(*fused(name), "precision=fp64")


def test_impossible_arguments_are_refused(tmp_path):
    with pytest.raises(ConfigurationError, match=r"optimizer\._target_=apex\.optimizers\.FusedSGD rejects"):
        attempt(tmp_path, small(*fused("fused_sgd"), "optimizer.nesterov=true", "optimizer.momentum=0"))
