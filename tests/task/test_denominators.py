"""The loss, its gradient and all metrics are those of the whole batch, however that is cut."""

import json
import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from manyheads.launchers.launch import launch, prepare
from manyheads.runner.data.keys import permutation
from manyheads.runner.data.rank.rng import seed_everything
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.loop import build
from manyheads.runner.model.rank.build_model import build_model
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.run.heartbeat import Heartbeat
from manyheads.runner.run.run_folder import RunFolder
from tests.in_process import ALONE, small
from tests.tail import tail
from tests.task.denominators import OF_TRANSFORMERS, TASKS, config_of, configs, look
from tests.task.language import Padded
from tests.task.zoo import Masks

BOTH = [f"{name}, {accumulation} micro-batches" for name in TASKS for accumulation in (1, 3)]


def on_one_rank(path, every):
    folder = RunFolder(path)
    Heartbeat.create(folder.heartbeat, ranks=1)
    heartbeat = Heartbeat(folder.heartbeat, rank=0)
    return {
        name: look(config, build.join(RunConfig.of(config), **ALONE._asdict()), folder, heartbeat)
        for name, config in every.items()
    }


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return on_one_rank(tmp_path_factory.mktemp("alone"), configs())


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """On so many ranks, all tasks in the same processes."""
    made = {}

    def on(ranks: int):
        if ranks not in made:
            folder = RunFolder(tmp_path_factory.mktemp(f"on_{ranks}"))
            every = configs("parallel=ddp", f"launcher.nproc_per_node={ranks}")
            (folder.path / "configs.json").write_text(json.dumps(every))
            folder.write_config(next(iter(every.values())))
            launch(prepare(folder, apart=True), main="tests.task.denominators")
            made[ranks] = torch.load(folder.path / "found.pt")
        return made[ranks]

    return on


def check(found, expected, *, rel=1e-9):
    assert found["losses"] == pytest.approx(expected["losses"], rel=rel)
    assert len(found["losses"]) >= 2
    for ours, theirs in zip(found["gradients"], expected["gradients"], strict=True):
        assert {*ours} == {*theirs}
        for name, gradient in ours.items():
            torch.testing.assert_close(gradient, theirs[name], rtol=rel, atol=rel / 1000)
    for name, value in expected["measured"].items():
        same = value if value is None else pytest.approx(value, rel=rel)
        assert name == "val_seconds" or found["measured"][name] == same, name


@pytest.mark.parametrize("name", TASKS)
def test_micro_batches_change_nothing(alone, name):
    check(alone[f"{name}, 3 micro-batches"], alone[f"{name}, 1 micro-batches"])
    assert all(map(math.isfinite, alone[f"{name}, 1 micro-batches"]["losses"]))


@pytest.mark.processes
@pytest.mark.parametrize("ranks", [3, tail(2)])
@pytest.mark.parametrize("name", BOTH)
def test_ranks_change_nothing(alone, together, name, ranks):
    check(together(ranks)[name], alone[f"{name.partition(',')[0]}, 1 micro-batches"])


@pytest.mark.needs("transformers")
def test_a_model_of_transformers(tmp_path):
    """Whatever the precision, its loss is computed in fp32."""
    one, three = on_one_rank(tmp_path, configs(tasks={"gpt2": OF_TRANSFORMERS})).values()
    check(three, one, rel=1e-5)
    assert one["measured"]["val_perplexity"] == pytest.approx(math.exp(one["measured"]["val_loss"]))


def first_batch(data):
    chosen = permutation(len(data), seed=1, epoch=0)[:18].tolist()
    return [torch.stack(part) for part in zip(*(data[index] for index in chosen), strict=True)]


def test_a_language_model_s_mean_is_that_of_all_tokens(alone):
    """By hand; all others are held against this way of counting."""
    config = config_of(*TASKS["language_model"])
    seed_everything(config["seed"])
    model = build_model(RunConfig.of(config).model, Padded).model.double()
    tokens, labels = first_batch(Padded(split="train"))
    loss = cross_entropy(model(tokens).flatten(0, 1), labels.flatten(), reduction="none")
    assert alone["language_model, 1 micro-batches"]["losses"][0] == pytest.approx(
        float(loss.detach().sum() / (labels != -100).sum()), rel=1e-12
    )


def test_a_segmentation_s_mean_is_that_of_all_pixels(alone):
    config = config_of(*TASKS["segmentation"])
    seed_everything(config["seed"])
    model = build_model(RunConfig.of(config).model, Masks).model.double()
    images, masks = first_batch(Masks(split="train"))
    outputs = model(images.double())
    aux = torch.nn.functional.interpolate(outputs["aux"], size=(6, 6), mode="bilinear")
    loss = sum(part * cross_entropy(each, masks, ignore_index=255) for part, each in ((1, outputs["out"]), (0.5, aux)))
    assert alone["segmentation, 1 micro-batches"]["losses"][0] == pytest.approx(float(loss.detach()), rel=1e-12)


def check_of_task(config):
    run = RunConfig.of(config)
    run.task.check_run(run)


def test_a_mean_of_each_gpu_s_own_is_refused():
    config = {**config_of(*OF_TRANSFORMERS), "parallel": small("parallel=dp")["parallel"]}
    on_gpus = {**config, "trainer": {**config["trainer"], "device": "cuda"}}
    with pytest.raises(ConfigurationError, match=r"parallel=dp has a replica on each GPU.*Set parallel=ddp"):
        check_of_task(on_gpus)
    check_of_task(config)
