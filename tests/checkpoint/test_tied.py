"""Tied weights: whatever averages, saves, loads, shards or exports weights treats all names of one alike."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from manyheads.runner.checkpoint.rank.checkpoint_content import kept
from manyheads.runner.checkpoint.rank.checkpoints import CheckpointStore
from manyheads.runner.checkpoint.rank.lazy import real
from manyheads.runner.checkpoint.rank.load import load
from manyheads.runner.checkpoint.rank.tied import names_of
from manyheads.runner.optimizer.rank.freezing import find_rests
from manyheads.runner.optimizer.rank.parameter_groups import find_groups
from manyheads.runner.run.run_folder import RunFolder
from tests import zoo
from tests.in_process import attempt, rows, small, train, typed
from tests.loop.observers.test_average import trained_with_all_weights
from tests.optional_wings import convert
from tests.parallel.models import Text
from tests.parallel.together import train_together

TEXT = (
    *("task=language_model", "data=custom", "data._target_=tests.parallel.models.Text", "+data.size=96"),
    *("optimizer=adamw", "optimizer.lr=0.03", "data.batch_size=24", "precision=fp64", "logger=[]"),
)
MODELS = ("Tied", "Repeated")
AVERAGES = {"ema": ("trainer.ema_decay=0.9", "trainer.epochs=1"), "swa": ("trainer.swa_start=1", "trainer.epochs=2")}


def overrides(model, average, *more):
    return (*TEXT, "model=custom", f"model._target_=tests.zoo.{model}", *AVERAGES[average], *more)


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-9, atol=1e-11, msg=name)


@pytest.fixture(scope="module", params=[(model, average) for model in MODELS for average in AVERAGES], ids="-".join)
def alone(request, tmp_path_factory):
    """A run in one process, with the average of its weights, computed here by the formula."""
    model, average = request.param
    path = tmp_path_factory.mktemp("alone")
    torch.manual_seed(1)
    mean = {name: value.double() for name, value in getattr(zoo, model)(num_classes=13).state_dict().items()}
    run, seen = trained_with_all_weights(path, *overrides(model, average))
    if average == "ema":
        for step in seen:
            mean = {name: 0.9 * value + 0.1 * step[name] for name, value in mean.items()}
    else:
        mean = {name: (seen[3][name] + seen[7][name]) / 2 for name in mean}
    return request.param, run.folder, mean


def test_every_name_has_the_average_wherever_it_is_evaluated_and_stored(alone, tmp_path):
    (model, average), folder, mean = alone
    ways = folder.read_result()["scores"]["evaluations"]
    assert ways == {"val": "averages of tied weights"}, "values of an earlier release, of one name's average, differ"
    last = load(folder.last_checkpoint)
    assert_same(last["average"]["weights"], mean)
    stored = load(folder.best_checkpoint)["model"] if average == "ema" else last["model"]
    assert_same(stored, mean)
    net, data = getattr(zoo, model)(num_classes=13).double(), Text(split="val")
    net.load_state_dict(mean)
    tokens, labels = map(torch.stack, zip(*(data[index] for index in range(len(data))), strict=True))
    by_formula = cross_entropy(net(tokens).flatten(0, 1), labels.flatten()).item()
    if average == "ema":
        assert float(rows(folder.epochs)[-1]["val_loss"]) == pytest.approx(by_formula)
    path = folder.best_checkpoint if average == "ema" else folder.last_checkpoint
    again = attempt(tmp_path, small(*overrides(model, "ema"), "trainer.evaluate_only=true", f"checkpoint.load={path}"))
    again.evaluate()
    assert again.folder.read_result()["metrics"]["val_loss"] == pytest.approx(by_formula)


@pytest.mark.parametrize("format", ["sharded", "torch"])
def test_conversions_keep_every_name(alone, tmp_path, format):
    _, folder, mean = alone
    content = real(load(convert(folder.last_checkpoint, format, tmp_path / "weights")))
    assert_same(content.get("model", content), load(folder.last_checkpoint)["model"])
    if format == "sharded":
        assert_same(content["average"]["weights"], mean)


def test_a_run_is_resumed_with_every_name(alone, tmp_path):
    (model, average), folder, _ = alone
    train(tmp_path, small(*overrides(model, average), "trainer.stop_after=3"))
    run = train(tmp_path, small(*overrides(model, average)))
    now, then = (load(each.last_checkpoint) for each in (run.folder, folder))
    assert_same(now["model"], then["model"])
    assert_same(now["average"]["weights"], then["average"]["weights"])
    other = attempt(tmp_path / "other", small(*overrides(model, average)))  # a replica that catches up
    other.state.restore(kept(CheckpointStore(run.folder, every=0, keep=0).last(otherwise=None)), seed=1)
    net = other.update.parallel.unwrap(other.update.model)
    assert_same(net.state_dict(), then["model"])
    assert len(names_of(net)) == len(names_of(getattr(zoo, model)(num_classes=13)))
    other.trainer.close()


STRATEGIES = ("ddp", "fsdp", "zero1", "pipeline")


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    path = tmp_path_factory.mktemp("together")
    cases = {
        f"{model}-{strategy}-{format}": partial(
            overrides, model, "ema", f"parallel={strategy}", f"checkpoint.format={format}"
        )
        for model, format, strategies in (("Tied", "sharded", STRATEGIES), ("Repeated", "single", STRATEGIES[:-1]))
        for strategy in strategies
    }
    train_together(path, 2, cases)
    return path


@pytest.mark.processes
@pytest.mark.timeout(600)
@pytest.mark.parametrize("alone", [(model, "ema") for model in MODELS], indirect=True, ids="-".join)
def test_under_strategies_it_is_the_average_of_one_process(alone, together):
    (model, _), folder, mean = alone
    runs = [run for run in sorted(together.glob(f"{model}-*")) if run.is_dir()]
    assert len(runs) == {"Tied": 4, "Repeated": 3}[model]
    for run in map(RunFolder, runs):
        assert_same(real(load(run.last_checkpoint))["average"]["weights"], mean)
        assert_same(real(load(run.best_checkpoint)["model"]), mean)
        own, expected = (float(rows(each.epochs)[-1]["val_loss"]) for each in (run, folder))
        assert own == pytest.approx(expected)


def test_layers_have_one_learning_rate_for_all_names_of_a_weight():
    model = zoo.Repeated(num_classes=5)
    model.blocks = nn.ModuleList(nn.Sequential(nn.Linear(12, 12), nn.Tanh()) for _ in range(3))
    model.head.weight = model.embedding.weight
    model._no_split_modules = ["Sequential"]
    groups = find_groups(model, typed("parameters.layer_decay=0.5").parameters, lr=1.0)
    assert sorted(name for _, names in groups for name in names) == sorted(names_of(model))
    assert ({"lr_factor": 0.5**4}, ["embedding.weight"]) in groups


def test_patterns_mean_a_weight_by_any_of_its_names():
    model = zoo.Tied(num_classes=5)
    section = typed("parameters.groups=[{match: head, lr_factor: 0.5}]").parameters
    assert find_groups(model, section, lr=1.0)[-1] == ({"lr_factor": 0.5}, ["embedding.weight"])
    (rest,) = find_rests(model, [{"match": "head", "until": 2}], epochs=2)
    assert rest.names == {"embedding.weight"}
