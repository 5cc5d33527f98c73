"""Complex weights and buffers: they keep their imaginary parts, and train as in plain torch, or are refused by name."""

import inspect
import re
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

from manyheads.runner.answers.measure.rank.difference import differences, factor
from manyheads.runner.checkpoint.rank.dtypes import converted
from manyheads.runner.checkpoint.rank.lazy import real
from manyheads.runner.checkpoint.rank.load import largest_entry, load, weights_sha256
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.loop.assembly import refuse_gradients
from manyheads.runner.run.run_folder import RunFolder
from tests import zoo
from tests.in_process import attempt, rows, small, train, typed, weights
from tests.optional_wings import convert
from tests.parallel.together import train_together
from tests.tail import tail

BASE = (
    *("task=regression", "data=custom", "data._target_=tests.zoo.Turned"),
    *("model=custom", "model._target_=tests.zoo.Spin"),
    *("data.batch_size=16", "optimizer.lr=0.05", "scheduler=constant", "trainer.epochs=8", "logger=[]"),
)
SPIN = (*BASE, "optimizer=adamw")
COMPLEX = {torch.float32: torch.complex64, torch.float64: torch.complex128}


@pytest.mark.parametrize("dtype", COMPLEX)
def test_a_model_is_converted_without_losing_anything(dtype):
    model = zoo.Spin()
    model.register_buffer("conjugate", model.eighth.conj())
    model.again = nn.Module()
    model.again.turn = model.turn
    before = {name: tensor.clone() for name, tensor in [*model.named_parameters(), *model.named_buffers()]}
    model = converted(model, dtype)
    assert (model.turn.dtype, model.eighth.dtype, model.conjugate.dtype) == (COMPLEX[dtype],) * 3
    assert (model.scale.dtype, model.calls.dtype) == (dtype, torch.int64)
    assert model.again.turn is model.turn
    assert "eighth" not in model.state_dict()
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        torch.testing.assert_close(tensor.to(before[name].dtype), before[name].resolve_conj(), rtol=0, atol=0)
    weights_sha256(model.state_dict())


@pytest.mark.parametrize("optimizer", ["adamw", tail("adam"), "sgd"])
def test_it_trains_as_in_plain_torch(tmp_path, optimizer):
    run = attempt(tmp_path, small(*BASE, f"optimizer={optimizer}", "trainer.clip_norm=0.5"))
    plain = zoo.Spin()
    optimizer = run.update.optimizer
    accepted = inspect.signature(type(optimizer)).parameters
    settings = {key: value for key, value in optimizer.defaults.items() if key in accepted}
    by_hand = type(optimizer)(plain.parameters(), **settings)
    batches = [(batch.inputs, batch.content[1]) for epoch in range(8) for batch in run.trainer.train.epoch(epoch)]
    for inputs, targets in batches:
        by_hand.zero_grad()
        mse_loss(plain(inputs), targets).backward()
        nn.utils.clip_grad_norm_(plain.parameters(), 0.5)
        by_hand.step()
    run.train(seed=1, state=None)
    run.trainer.close()
    torch.testing.assert_close(weights(run.trainer)["turn"], plain.turn.data)
    assert plain.turn.imag.abs() > 0.15


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return train(tmp_path_factory.mktemp("alone"), small(*SPIN, "trainer.ema_decay=0.9", "precision=fp64")).folder


def test_the_header_says_that_the_optimizer_is_not_fused(tmp_path, capsys):
    attempt(tmp_path, small(*SPIN)).trainer.close()
    printed = " ".join(capsys.readouterr().out.split())
    assert "not fused no fused kernel updates turn, which is complex" in printed
    assert "3 parameters" in printed


def test_it_learns_and_averages_and_checkpoints_keep_imaginary_parts(alone, tmp_path):
    assert float(rows(alone.epochs)[-1]["val_loss"]) < 0.9 * float(rows(alone.epochs)[0]["val_loss"])
    state = load(alone.last_checkpoint)
    for each in (state["model"], state["average"]["weights"], load(alone.best_checkpoint)["model"]):
        assert each["turn"].dtype is torch.complex128
        assert each["turn"].imag.abs() > 0.1
    with pytest.raises(ConfigurationError, match=r"turn is torch\.complex128"):
        convert(alone.last_checkpoint, "sharded", tmp_path / "sharded")


@pytest.mark.parametrize(
    "more",
    [
        ("precision=bf16", "checkpoint.format=sharded"),
        ("trainer.on_spike=skip", "trainer.verify_every=2", "trainer.sam_rho=0.01"),
        ("precision=amp", "precision.level=O2", "precision.dtype=bfloat16", "trainer.swa_start=1"),
    ],
    ids=str,
)
def test_whatever_else_is_asked_for_works(tmp_path, more):
    run = train(tmp_path, small(*SPIN, *more))
    assert real(load(run.folder.last_checkpoint)["model"])["turn"].imag.abs() > 0.1


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (("trainer.clip_value=0.1",), r"trainer\.clip_value=0\.1 does not support turn, which is complex"),
        (("precision=amp", "precision.dtype=float16"), r"precision=amp does not support turn, which is complex"),
        (("optimizer=lamb",), r"optimizer\._target_=\S+LAMB can't update turn, which is complex"),
        (("optimizer=lion",), r"optimizer\._target_=\S+Lion can't update turn, which is complex"),
        (("optimizer=muon",), r"optimizer\._target_=\S+Muon can't update turn, which is complex"),
    ],
    ids=str,
)
def test_what_cannot_compute_with_them_is_refused_by_name(tmp_path, more, text):
    with pytest.raises(ConfigurationError, match=text):
        attempt(tmp_path, small(*BASE, *more))


STRATEGIES = {"fsdp": (), "tensor": (), "pipeline": (), "zero1": (), "ddp": ("parallel.compression=bf16",)}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_strategies_that_cannot_exchange_them_refuse_them_by_name(strategy):
    run = typed(*BASE, "trainer.device=cpu", f"parallel={strategy}", *STRATEGIES[strategy])
    parallel = run.parallel.instantiate(rank=0, local_rank=0, world_size=2, device_type="cpu")
    precision = run.precision.instantiate(parallel)
    text = f"parallel={strategy} does not support turn, which is complex. Set parallel=ddp without"
    with pytest.raises(ConfigurationError, match=re.escape(text)):
        refuse_gradients(run, parallel, precision, zoo.Spin())


def test_parity_sees_imaginary_parts():
    one, other = {"turn": torch.tensor([1 + 1j])}, {"turn": torch.tensor([1 + 2j])}
    assert largest_entry(other["turn"]) == 2
    assert differences(one, other)["turn"] == 1
    assert factor(one, {"turn": 2 * one["turn"]}, 1e-6) == pytest.approx(2)
    assert factor(one, other, 1e-6) is None


@pytest.mark.processes
@pytest.mark.timeout(600)
def test_replicas_give_the_numbers_of_one_process(alone, tmp_path):
    shared = (*SPIN, "precision=fp64", "trainer.ema_decay=0.9", "parallel.broadcast_buffers=true")
    train_together(tmp_path, 2, {"ddp": partial(lambda: (*shared, "parallel=ddp"))})
    own, expected = (load(each.last_checkpoint)["model"] for each in (RunFolder(tmp_path / "ddp"), alone))
    torch.testing.assert_close(own["turn"], expected["turn"], rtol=1e-9, atol=1e-11)
