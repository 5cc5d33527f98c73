"""Averages of the weights: what they are, what is evaluated by them, and that they are resumed."""

import re

import pytest
import torch
from torch import nn

from manyheads.runner.checkpoint.rank.lazy import real
from manyheads.runner.checkpoint.rank.load import load
from manyheads.runner.errors import ConfigurationError
from tests.in_process import attempt, composed, rows, small, train, weights
from tests.in_process import completed_for_here as complete
from tests.loop.test_session import killed_after, tables

RICH = ("model=custom", "model._target_=tests.zoo.Rich", "optimizer=adamw", "optimizer.lr=0.01")
EMA = (*RICH, "trainer.ema_decay=0.9")
SWA = (*RICH, "trainer.epochs=4", "trainer.swa_start=2", "data.train_samples=40")


def trained_with_all_weights(path, *overrides):
    """A run, and its parameters after each of its updates."""
    run, seen = attempt(path, small(*overrides)), []
    make = run.trainer.make

    def noted(*arguments, **options):
        made = make(*arguments, **options)
        seen.append({name: weight.double() for name, weight in weights(run.trainer).items()})
        return made

    run.trainer.make = noted
    run.train(seed=1, state=None)
    run.trainer.close()
    return run, seen


@pytest.mark.parametrize(
    ("more", "stays"),
    [
        ((), lambda step: 0.9),
        (("trainer.ema_every=3",), lambda step: 0.9 if step % 3 == 0 else 1.0),
        (("trainer.ema_warmup=true",), lambda step: min(0.9, step / (9 + step))),
    ],
)
def test_the_moving_average_is_that_of_its_formula(tmp_path, more, stays):
    run, seen = trained_with_all_weights(tmp_path, *EMA, *more, "trainer.epochs=1")
    torch.manual_seed(1)
    model = type(run.parallel.unwrap(run.update.model))(num_classes=3)
    mean = {name: parameter.detach().double() for name, parameter in model.named_parameters()}
    for step, found in enumerate(seen, 1):
        mean = {name: stays(step) * value + (1 - stays(step)) * found[name] for name, value in mean.items()}
    state = load(run.folder.last_checkpoint)
    for name, value in mean.items():
        torch.testing.assert_close(state["average"]["weights"][name].double(), value, rtol=1e-5, atol=1e-6)
    assert torch.equal(state["model"]["head.weight"].double(), seen[-1]["head.weight"])


@pytest.fixture(scope="module")
def averaged(tmp_path_factory):
    return train(tmp_path_factory.mktemp("ema"), small(*EMA))


def test_it_is_evaluated_and_is_the_best_and_leaves_the_training_as_it_was(averaged, tmp_path):
    plain = train(tmp_path / "plain", small(*RICH))
    result = averaged.folder.read_result()
    assert result["weights_sha256"] == plain.folder.read_result()["weights_sha256"]
    assert result["evaluated"] == "ema"
    assert [row["val_loss"] for row in rows(averaged.folder.epochs)] != [
        row["val_loss"] for row in rows(plain.folder.epochs)
    ]
    best = f"checkpoint.load={averaged.folder.best_checkpoint}"
    again = attempt(tmp_path / "again", small(*EMA, "trainer.evaluate_only=true", best))
    again.evaluate()
    for name in ("val_loss", "val_acc1"):
        assert again.folder.read_result()["metrics"][name] == result["best"][name]


@pytest.mark.parametrize(("dies", "format"), [(9, "single"), (22, "single"), (22, "sharded")])
def test_it_is_resumed_to_the_bit(averaged, tmp_path, dies, format):
    config = small(*EMA, "checkpoint.every=7", f"checkpoint.format={format}")
    killed_after(tmp_path, config, dies)
    resumed = train(tmp_path, config)
    assert tables(resumed) == tables(averaged)
    one, other = (real(load(each.folder.last_checkpoint)["average"]) for each in (resumed, averaged))
    assert one["count"] == other["count"] == 40
    bests = [real(load(each.folder.best_checkpoint)["model"]) for each in (resumed, averaged)]
    assert all(torch.equal(bests[0][name], weight) for name, weight in bests[1].items())
    assert all(torch.equal(tensor, other["weights"][name]) for name, tensor in one["weights"].items())


@pytest.mark.parametrize("precision", ["precision=bf16", "precision.level=O2"])
def test_it_is_in_fp32_whatever_the_weights_are(tmp_path, precision):
    given = (precision,) if "level" not in precision else ("precision=amp", precision, "precision.dtype=bfloat16")
    run = train(tmp_path, small(*EMA, *given, "trainer.epochs=1", "optimizer.fused=false"))
    found = load(run.folder.last_checkpoint)["average"]["weights"]
    assert {tensor.dtype for tensor in found.values()} == {torch.float32}
    assert load(run.folder.best_checkpoint)["model"]["head.weight"].equal(found["head.weight"])


def test_the_mean_of_epochs_is_what_remains_with_statistics_of_its_own(tmp_path):
    run, seen = trained_with_all_weights(tmp_path / "whole", *SWA)
    ends = [seen[step] for step in (9, 14, 19)]  # of epochs 2, 3, 4
    final = weights(run.trainer)
    for name in ("head.weight", "body.0.weight", "body.1.bias"):
        mean = sum(end[name] for end in ends) / 3
        torch.testing.assert_close(final[name].double(), mean, rtol=1e-5, atol=1e-6)
    model = run.parallel.unwrap(run.update.model)
    inputs = [batch.inputs for batch in run.trainer.train.epoch(3)]
    model.dropout = nn.Identity()
    torch.optim.swa_utils.update_bn(inputs, model)
    for name in ("body.1.running_mean", "body.1.running_var"):
        torch.testing.assert_close(final[name], weights(run.trainer)[name])
    killed_after(tmp_path / "killed", small(*SWA, "checkpoint.every=3"), 17)
    resumed = train(tmp_path / "killed", small(*SWA, "checkpoint.every=3"))
    assert resumed.folder.read_result()["weights_sha256"] == run.folder.read_result()["weights_sha256"]
    assert tables(resumed) == tables(run)


@pytest.mark.parametrize(
    ("overrides", "key", "text"),
    [
        (("trainer.ema_decay=0.9", "trainer.swa_start=1"), "ema_decay", "cannot be combined. Set one of them to null"),
        (("trainer.swa_start=99", "trainer.epochs=9"), "swa_start", "is after the last of 9 epochs"),
        (
            ("trainer.ema_decay=0.9", "parallel=local_sgd"),
            "ema_decay",
            "trainer.ema_decay=0.9: ranks of parallel=local_sgd have weights of their own",
        ),
    ],
)
def test_what_cannot_be_averaged_is_refused(overrides, key, text):
    from manyheads.runner.config.schema import check

    with pytest.raises(ConfigurationError, match=re.escape(text)) as error:
        complete(check(composed(*overrides, "trainer.device=cpu")))
    assert error.value.key == f"trainer.{key}"
