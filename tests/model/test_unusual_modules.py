"""Modules and optimizers beside the usual ones: they work as in plain torch, or are refused before anything is lost."""

import re
from types import SimpleNamespace

import pytest
import torch

from manyheads.launchers.launch import launch, prepare
from manyheads.runner.checkpoint.rank.load import load
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.loop.diagnosis import explained
from manyheads.runner.run.run_folder import RunFolder
from tests import zoo
from tests.in_process import attempt, opened, small, train, weights

BAGS = (
    *("data=custom", "data._target_=tests.zoo.Tokens", "model=custom", "model._target_=tests.zoo.Bags"),
    *("trainer.epochs=2", "data.batch_size=8"),
)


def of(model, *more):
    return small("model=custom", f"model._target_=tests.zoo.{model}", *more)


def test_lazy_modules_learn_their_shapes_before_anything_counts_them(tmp_path, capsys):
    with opened(tmp_path / "a", of("LazyNet")) as trainer:
        initial = weights(trainer)
    assert "1,191 parameters" in capsys.readouterr().out
    torch.manual_seed(5)
    with opened(tmp_path / "b", of("LazyNet", "data.batch_size=16")) as trainer:
        assert all(torch.equal(weights(trainer)[name], each) for name, each in initial.items())
    path = train(tmp_path / "c", of("LazyNet")).folder.last_checkpoint
    with opened(tmp_path / "d", of("LazyNet", f"checkpoint.load={path}")) as trainer:
        assert all(torch.equal(weights(trainer)[name], each) for name, each in load(path)["model"].items())


@pytest.mark.parametrize(
    ("model", "more", "text"),
    [
        (
            "Extra",
            ("+model.has_object=true",),
            "tests.zoo.Extra: its _extra_state contains object, which no checkpoint",
        ),
        ("Rich", ("optimizer=custom", "optimizer._target_=torch.optim.LBFGS"), "LBFGS computes the loss itself"),
    ],
)
def test_what_no_run_supports_is_refused_before_training(tmp_path, model, more, text):
    with pytest.raises(ConfigurationError, match=re.escape(text)):
        attempt(tmp_path, of(model, *more))


def test_parameters_that_replicas_wait_for_are_named():
    said = (
        "Expected to have finished reduction in the prior iteration before starting a new one. This error ...\n"
        "Parameter indices which did not receive grad for rank 0: 2 3\n In addition, ..."
    )
    model = zoo.Unused(num_classes=3)
    update = SimpleNamespace(model=model, parallel=SimpleNamespace(unwrap=lambda model: model))
    mistake = explained(RuntimeError(said), update, (None, None))
    assert "spare.weight, spare.bias had no gradients" in str(mistake)
    assert mistake.key == "parallel.find_unused_parameters"


@pytest.mark.processes
@pytest.mark.parametrize("strategy", ["ddp", "zero1"])
def test_a_run_that_leaves_parameters_out_says_which_and_what_to_set(tmp_path, strategy):
    folder = RunFolder(tmp_path)
    folder.write_config(of("Unused", f"parallel={strategy}", "launcher.nproc_per_node=2"))
    said = r"parallel\.find_unused_parameters=false: spare\.weight, spare\.bias had no gradients .* Set it to true"
    with pytest.raises(ConfigurationError, match=said):
        launch(prepare(folder))


@pytest.mark.parametrize("fused", ["true", "false"])
def test_sparse_gradients_give_the_weights_of_dense_ones(tmp_path, capsys, fused):
    found = {}
    for sparse in ("true", "false"):
        more = (
            f"+model.sparse={sparse}",
            f"optimizer.fused={fused}",
            "optimizer.weight_decay=0",
            "trainer.clip_norm=0.1",
        )
        found[sparse] = weights(train(tmp_path / sparse, small(*BAGS, *more)).trainer)
        printed = "no fused kernel updates embedding.weight, whose gradients are sparse" in capsys.readouterr().out
        assert printed == (sparse == "true" and fused == "true")
    assert all(torch.allclose(found["true"][name], each) for name, each in found["false"].items())


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (("optimizer=sgd",), "Set optimizer.weight_decay=0."),
        (("optimizer=adam",), "Adam does not support sparse gradients"),
        (("optimizer=custom", "optimizer._target_=torch.optim.SparseAdam"), "does not support dense gradients"),
    ],
)
def test_optimizers_that_cannot_step_with_sparse_gradients_are_refused(tmp_path, more, text):
    with pytest.raises(ConfigurationError, match=re.escape(text)):
        attempt(tmp_path, small(*BAGS, *more))
