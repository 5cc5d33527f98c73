"""parallel=apex in one process; its ranks train together in tests/launchers/test_apex.py."""

from pathlib import Path

import pytest
import torch

from tests import apex_library
from tests.apex_library import small
from tests.in_process import attempt, opened, train
from tests.in_process import small as plain

pytestmark = [pytest.mark.usefixtures("apex", "meeting"), *apex_library.marks]

RICH = ("model=custom", "model._target_=tests.zoo.Rich")


@pytest.fixture
def meeting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Where the only rank meets itself."""
    monkeypatch.setenv("MANYHEADS_MEETING", str(tmp_path / "meeting"))
    yield
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def alone(*overrides: str) -> dict:
    return small("parallel=apex", "launcher=inline", *overrides)


def test_the_model_is_wrapped_in_apex_s_with_the_options(tmp_path):
    from apex.parallel import DistributedDataParallel

    options = ("parallel.message_size=7", "parallel.delay_allreduce=true", "parallel.gradient_predivide_factor=2")
    with opened(tmp_path / "run", alone(*options, "parallel.allreduce_always_fp32=true")) as trainer:
        assert isinstance(trainer.update.model, DistributedDataParallel)
        assert (trainer.update.model.message_size, trainer.update.model.delay_allreduce) == (7, True)
        assert trainer.update.parallel.options == {
            "message_size": 7,
            "delay_allreduce": True,
            "allreduce_always_fp32": True,
            "gradient_predivide_factor": 2,
        }
        assert trainer.update.parallel.unwrap(trainer.update.model) is trainer.update.model.module
        assert trainer.update.parallel.unwrap(trainer.update.model.module) is trainer.update.model.module
        assert trainer.update.parallel.summary == f"1 rank over {'nccl' if apex_library.IS_REAL else 'gloo'}"


@pytest.mark.parametrize("accumulation", [1, 2])
@pytest.mark.parametrize("delay", ["true", "false"])
def test_one_rank_gives_the_results_of_single(tmp_path, accumulation, delay):
    shared = ("precision=fp64", f"trainer.grad_accumulation={accumulation}")
    single = train(tmp_path / "single", plain(*shared, f"trainer.device={apex_library.DEVICE}"))
    run = train(tmp_path / "apex", alone(*shared, f"parallel.delay_allreduce={delay}"))
    for name, value in single.state.weights().items():
        assert torch.allclose(run.state.weights()[name], value, rtol=1e-9), name
    assert list(run.state.weights()) == list(single.state.weights())


def test_gradients_stay_here_until_the_last_micro_batch(tmp_path):
    with opened(tmp_path / "run", alone()) as trainer:
        model, seen = trainer.update.model, []
        with trainer.update.parallel.accumulating(model, last=False):
            seen.append(model._disable_allreduce)
        with pytest.raises(KeyError), trainer.update.parallel.accumulating(model, last=False):
            raise KeyError
        with trainer.update.parallel.accumulating(model, last=True):
            seen.append(model._disable_allreduce)
        assert seen == [True, False]
        assert not model._disable_allreduce


def test_sync_batchnorm_is_apex_s_and_comes_before_the_optimizer(tmp_path):
    from apex.parallel import SyncBatchNorm

    run = attempt(tmp_path / "run", alone("parallel.sync_batchnorm=true", *RICH, "trainer.max_steps=2"))
    norm = run.trainer.update.model.module.body[1]
    assert isinstance(norm, SyncBatchNorm)
    owned = {id(p) for group in run.trainer.update.optimizer.param_groups for p in group["params"]}
    assert {id(norm.weight), id(norm.bias)} <= owned
    before = norm.weight.detach().clone()
    run.train(seed=1, state=None)
    assert not torch.equal(norm.weight, before)


def test_priming_settles_the_buckets_and_leaves_no_trace(tmp_path):
    """What the first backward pass does otherwise than the later ones must not depend on where a run was resumed."""
    run = attempt(tmp_path / "run", alone(*RICH))
    before, steps = {k: v.clone() for k, v in run.state.weights().items()}, []
    prime = run.trainer.update.parallel.prime
    run.trainer.update.parallel.prime = lambda step: prime(lambda: (step(), steps.append(1)))
    run.trainer.update.prime(run.trainer.train.example)
    assert steps
    assert all(torch.equal(value, before[name]) for name, value in run.state.weights().items())
    assert all(p.grad is None or not p.grad.any() for p in run.trainer.update.model.parameters())
    run.trainer.reporter.recorder.close()


@pytest.mark.parametrize("level", ["O1", "O2"])
def test_goes_together_with_precision_apex(tmp_path, level):
    overrides = ("precision=apex", f"precision.opt_level={level}", "trainer.grad_accumulation=2")
    run = train(tmp_path / "run", alone(*overrides))
    assert run.trainer.progress.step == 40
