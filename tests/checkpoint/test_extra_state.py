"""Extra state of modules: plain data passes through checkpoints, resuming, conversions and digests."""

import copy

import pytest
import torch

from manyheads.runner.checkpoint.rank.extra_state import adopt_extra_state, packed, refuse_cut, unpacked
from manyheads.runner.checkpoint.rank.fit import load_model
from manyheads.runner.checkpoint.rank.lazy import real
from manyheads.runner.checkpoint.rank.load import load, weights_sha256
from manyheads.runner.errors import ConfigurationError
from tests import zoo
from tests.in_process import rows, small, train
from tests.optional_wings import convert

KEYS = ("model=custom", "model._target_=tests.zoo.Extra", "trainer.ema_decay=0.9", "trainer.epochs=2")
NAME = "_extra_state"


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    return train(tmp_path_factory.mktemp("uninterrupted"), small(*KEYS)).folder


def test_single_files_hold_what_plain_torch_would_write(uninterrupted):
    for path in (uninterrupted.last_checkpoint, uninterrupted.best_checkpoint):
        state, net = torch.load(path, weights_only=True), zoo.Extra(num_classes=3)
        net.load_state_dict(state["model"])
        assert net.calls == state["progress"]["step"]
    assert net.calls in (20, 40)


@pytest.mark.parametrize("format", ["single", "sharded"])
def test_a_run_is_resumed_with_it(uninterrupted, tmp_path, format):
    keys = (*KEYS, f"checkpoint.format={format}")
    train(tmp_path, small(*keys, "trainer.stop_after=23"))
    run = train(tmp_path, small(*keys))
    assert run.update.model.calls == 40
    now, then = (each.read_result()["weights_sha256"] for each in (run.folder, uninterrupted))
    assert now == then
    timed = ("val_loss", "train_loss")
    assert [[row[name] for name in timed] for row in rows(run.folder.epochs)] == [
        [row[name] for name in timed] for row in rows(uninterrupted.epochs)
    ]


@pytest.mark.parametrize("first", ["torch", "sharded"])
def test_conversions_keep_it(uninterrupted, tmp_path, first):
    expected = load(uninterrupted.last_checkpoint)["model"]
    path = uninterrupted.last_checkpoint
    for number, format in enumerate((first, "safetensors" if first == "torch" else "single")):
        path = convert(path, format, tmp_path / str(number))
        if format == "safetensors":
            from safetensors.torch import load_file

            weights = load_file(path)
        else:
            weights = real(load(path))
        weights = weights.get("model", weights)
        assert weights_sha256(unpacked(weights)) == weights_sha256(expected)
        net = zoo.Extra(num_classes=3)
        adopt_extra_state(net, "net")
        load_model(net, weights, path)
        assert net.calls == 40
        if format in ("torch", "single"):
            assert weights[NAME][3] == [None, (0.1, "text")]


def test_whatever_is_plain_is_restored_exactly():
    value = {
        "tensors": [torch.zeros(0, 2), torch.tensor(1 + 2j), torch.tensor([1.5], dtype=torch.bfloat16)],
        1: (True, None, -(2**70), float("inf"), "ü\n"),
        "nested": {"empty": [], (1, "a"): {}},
    }
    weights = {"a.weight": torch.ones(2), f"a.{NAME}": value}
    stored = packed(weights)
    assert all(isinstance(each, torch.Tensor) for each in stored.values())
    again = unpacked(stored)[f"a.{NAME}"]
    tensors, expected = again.pop("tensors"), (copied := copy.deepcopy(value)).pop("tensors")
    assert again == copied
    assert all(torch.equal(a, b) and a.dtype is b.dtype for a, b in zip(tensors, expected, strict=True))
    own = {NAME: torch.zeros(3, dtype=torch.uint8)}
    assert unpacked(packed(own))[NAME] is own[NAME]


def test_strategies_that_cut_models_refuse_it():
    net = zoo.Extra(num_classes=3)
    adopt_extra_state(net, "net")
    with pytest.raises(ConfigurationError, match=r"parallel=fsdp cuts models .* _extra_state has no fixed size"):
        refuse_cut(net, "fsdp")
    refuse_cut(zoo.Unused(num_classes=3), "fsdp")
