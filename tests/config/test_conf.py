"""Every file in conf/ is what the others are: described, complete, and understood by the code that it names."""

import importlib
import inspect
import re

import pytest
import yaml
from hydra import compose

from manyheads.runner.config.hydra_version import composing_from_conf
from manyheads.runner.config.lookup import CONF, options, read_option
from manyheads.runner.config.schema import check
from manyheads.runner.option.declared import GROUPS
from tests import composing
from tests.tail import tail

FILES = sorted(CONF.rglob("*.yaml"))
OPTIONS = [(group, option) for group in GROUPS for option in options(group)]
CODE = {  # parallel and precision have the class in a module of the rank side
    "parallel": "manyheads.runner.parallel.rank.{}",
    "precision": "manyheads.runner.precision.rank.{}",
    "launcher": "manyheads.launchers.{}",
}
MESHES = {"fsdp", "tensor", "pipeline", "mesh"}  # one class, of which each has some dimensions
OURS = [(group, option) for group in CODE for option in options(group)]
REQUIRED = {"data.root": "/somewhere", "data.target": "price", "_target_": "my_package.Thing"}
LOADING = {
    "batch_size",
    "num_workers",
    "drop_last",
    "on_corrupt",
    "fingerprint",
    "on_device",
    *("order", "order_block", "order_window", "sampler", "epoch_samples"),
    *("val_fraction", "folds", "fold", "split_seed", "transform", "val_transform"),
}  # understood by the loaders, for every kind of data
FITTING = {"lr_scaling", "base_batch_size"}  # understood by the optimizers' own module, for every class


def composed(group, option):
    """The config with that option, and whatever it leaves to the user."""
    content = read_option(group, option) if group in GROUPS else {}
    missing = [f"{group}.{key}" for key, value in content.items() if value == "???"]
    given = [f"{key}={REQUIRED.get(key) or REQUIRED[key.rpartition('.')[2]]}" for key in missing]
    return composing.composed(f"{group}={option}", *given)


def target_of(group, option):
    module, _, name = read_option(group, option)["_target_"].rpartition(".")
    return getattr(importlib.import_module(module), name)


def arguments(target):
    """Names that a class or function can be given: its own and, where a class passes others on, those of its bases."""
    if inspect.isfunction(target):
        return set(inspect.signature(target).parameters)
    names = set()
    for base in target.__mro__:
        names |= set(getattr(inspect.getmodule(base), "KEYS", ()))  # of several machines, which launchers take together
        method = base.__dict__.get("__init__")
        parameters = inspect.signature(method).parameters.values() if method is not None else []
        names |= {p.name for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)}
        if method is not None and not any(p.kind == p.VAR_KEYWORD for p in parameters):
            break
    return names


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(CONF)))
def test_begins_with_a_line_that_says_what_it_is(path):
    first, second, *_ = path.read_text().splitlines()
    if first.startswith("# @package"):  # Hydra wants this one to be the first
        first = second
    assert re.fullmatch(r"# \S.{20,}", first), first
    assert not first.startswith("# @")


@pytest.mark.parametrize(("group", "option"), OPTIONS)
def test_its_comments_stand_in_one_column(group, option):
    _, *lines = (CONF / group / f"{option}.yaml").read_text().splitlines()
    assert len({line.index(" # ") for line in lines if " # " in line}) <= 1


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(CONF)))
def test_has_no_key_twice(path):
    class Strict(yaml.SafeLoader):
        def construct_mapping(self, node, deep=False):
            keys = [self.construct_object(key) for key, _ in node.value]
            assert len(keys) == len(set(keys)), keys
            return super().construct_mapping(node, deep)

    assert isinstance(yaml.load(path.read_text(), Strict), dict)


CHOSEN = (("model", "torchvision"), ("model", "timm"))  # whose name is the model's, which the user chooses


@pytest.mark.parametrize(("group", "option"), [each for each in OPTIONS if each not in CHOSEN])
def test_is_called_by_its_name(group, option):
    assert read_option(group, option)["name"] == option


@pytest.mark.parametrize(("group", "option"), OPTIONS)
def test_starts_with_its_class_and_its_name(group, option):
    keys = [key for key in read_option(group, option) if key != "_option_"]
    assert keys[:2] == ["_target_", "name"]


@pytest.mark.parametrize(("group", "option"), OURS)
def test_its_code_has_the_same_name(group, option):
    code = "manyheads.runner.parallel.rank.model_parallel.mesh" if option in MESHES else CODE[group].format(option)
    assert read_option(group, option)["_target_"].rpartition(".")[0] == code


@pytest.mark.parametrize(("group", "option"), [*OPTIONS, *(("experiment", name) for name in options("experiment"))])
def test_composes_and_is_a_valid_run_config(group, option):
    config = check(composed(group, option))
    if group in GROUPS:
        assert config[group]["name"] == read_option(group, option)["name"]
        assert set(config[group]) == set(read_option(group, option))


@pytest.mark.parametrize("option", options("experiment"))
def test_an_experiment_changes_something(option):
    assert check(composing.composed(f"experiment={option}")) != check(composing.composed("~experiment"))


@pytest.mark.parametrize("optimizer", sorted({*options("optimizer")} - {"several"}))  # which has none without parts
@pytest.mark.parametrize("experiment", [[], tail(["experiment=digits_quick"])])
def test_the_default_run_changes_the_learning_rate_of_sgd_alone(optimizer, experiment):
    given = ["optimizer._target_=torch.optim.RMSprop"] if optimizer == "custom" else []
    config = composing.composed(f"optimizer={optimizer}", *given, *experiment)
    chosen = composing.composed(f"optimizer={optimizer}", *given, *experiment, "optimizer.lr=0.3")
    own = read_option("optimizer", optimizer)["lr"]
    assert config.optimizer.lr == (0.02 if optimizer in ("sgd", "fused_sgd") else own)
    assert (config.trainer.epochs, config.scheduler.warmup_epochs) == ("15 or max_steps", 1)
    assert chosen.optimizer.lr == 0.3


@pytest.mark.parametrize("option", options("parallel"))
def test_a_launcher_on_the_command_line_wins(option):
    config = composing.composed(f"parallel={option}", "launcher=torchrun")
    assert config.launcher.name == "torchrun"


@pytest.mark.parametrize("option", options("data"))
def test_every_data_option_has_the_shared_keys(option):
    assert {"batch_size", "num_workers", "drop_last", "order"} <= set(read_option("data", option))


@pytest.mark.parametrize("option", options("launcher"))
def test_every_launcher_has_the_shared_keys(option):
    assert {"nproc_per_node", "threads_per_rank", "stall_timeout"} <= set(read_option("launcher", option))


@pytest.mark.parametrize("option", options("scheduler"))
def test_every_scheduler_has_a_warm_up(option):
    assert "warmup_epochs" in read_option("scheduler", option)


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(("group", "option"), [(g, o) for g, o in OPTIONS if read_option(g, o)["_target_"] != "???"])
def test_its_keys_are_what_its_class_takes(group, option):
    keys = set(read_option(group, option)) - {"_target_", "_option_", "name"}
    keys -= {"data": LOADING, "optimizer": FITTING, "model": {"pretrained"}}.get(group, set())
    assert keys - arguments(target_of(group, option)) == set()


@pytest.mark.parametrize("name", ["manyheads", "default", "disabled", "none", "stdout"])
def test_every_handler_of_a_log_is_complete(name):
    """Keys of this project's that are set over any log's config would be a handler without a class in some."""
    with composing_from_conf():
        logged = compose("config", [f"hydra/job_logging={name}"], return_hydra_config=True).hydra.job_logging
    assert all("class" in handler for handler in logged.get("handlers", {}).values())
    assert (name == "manyheads") == ("WARNING" in str(logged))
