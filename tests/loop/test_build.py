"""Assembly, instantiation by name, and the header."""

import pytest
import torch

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.loop.build import set_process
from manyheads.runner.loop.train_settings import TrainSettings
from manyheads.runner.model.model_option import ModelOption
from manyheads.runner.option.locate import call, locate
from tests.in_process import attempt, opened, small, train, typed, weights


def test_locate_finds_classes_and_says_what_is_missing():
    assert locate("model", "torch.nn.Linear") is torch.nn.Linear
    for target, message in (
        ("torch.nn.Linea", r"model\._target_=torch\.nn\.Linea: torch\.nn has no Linea"),
        ("tork.nn.Linear", r"can't be imported: No module named 'tork'"),
        ("Linear", r"it has no Linear"),
        ("torch.nn.", r"torch\.nn has no "),
    ):
        with pytest.raises(ConfigurationError, match=message):
            locate("model", target)


def test_call_tells_arguments_that_do_not_fit_from_faults_inside():
    def fails(*, size):
        raise TypeError("inside")

    with pytest.raises(ConfigurationError, match=r"model\._target_=my\.fails rejects its arguments: .*'size'"):
        call("model", "my.fails", fails, width=3)
    with pytest.raises(TypeError, match="inside"):
        call("model", "my.fails", fails, size=3)


def test_instantiate_leaves_out_the_section_s_own_keys():
    section = {"_target_": "fractions.Fraction", "name": "half", "denominator": 2}
    assert ModelOption(section).instantiate(1) == 0.5


@pytest.mark.parametrize(("max_steps", "total"), [(None, 30), (7, 7), (31, 30)])
def test_the_number_of_updates(max_steps, total):
    section = typed().changed(trainer={"epochs": 3, "max_steps": max_steps}).trainer
    assert TrainSettings.of(section, updates=10).total_steps == total


def test_process_settings_are_set_each_time():
    for number in (2, 1):
        set_process(number, detect_anomaly=False, deterministic=False)
        assert torch.get_num_threads() == number


def test_initial_weights_depend_on_the_seed_alone(tmp_path):
    variants = {
        "plain": (),
        "data": ("data.num_workers=1", "data.batch_size=16"),
        "optimizer": ("optimizer=adamw", "trainer.channels_last=true"),
        "dp": ("parallel=dp",),
    }
    built = {}
    for name, overrides in variants.items():
        torch.manual_seed(len(built) + 100)
        with opened(tmp_path / name, small(*overrides)) as trainer:
            built[name] = weights(trainer)
    with opened(tmp_path / "seed", small("seed=2")) as trainer:
        other = weights(trainer)
    for name in variants:
        assert all(torch.equal(built[name][key], built["plain"][key]) for key in built["plain"])
    assert not torch.equal(other["classifier.weight"], built["plain"]["classifier.weight"])


def test_the_header_says_what_is_run(tmp_path, capsys):
    options = ("optimizer.lr_scaling=linear", "optimizer.lr=0.32", "trainer.grad_accumulation=2", "data.batch_size=8")
    with opened(tmp_path, small(*options)):
        pass
    lines = {line.split()[0]: " ".join(line.split()[1:]) for line in capsys.readouterr().out.splitlines() if line}
    assert lines["batch"] == "8 = 1 rank x 4 samples x 2 micro-batches"
    assert lines["optimizer"] == "sgd, lr 0.01 = 0.32 scaled by 8/256, linear; scheduler cosine"
    assert lines["model"] == "small_cnn, 527 parameters"
    assert lines["data"] == "synthetic, 160 training and 37 validation samples, 3 classes"
    assert lines["precision"] == "fp32, float32"
    assert lines["parallel"] == "single, one process, started by inline"
    assert lines["length"] == "40 updates = 2 epochs x 20 (trainer.epochs)"
    assert lines["device"] == "cpu, 1 CPU thread per rank"


@pytest.mark.parametrize("precision", ["fp32", "fp64"])
def test_loaded_weights_keep_all_their_digits(tmp_path, precision):
    """They once went through fp32 on their way into an fp64 model."""
    train(tmp_path / "a", small(f"precision={precision}", "trainer.epochs=1"))
    last = tmp_path / "a" / "checkpoints" / "last.pt"
    again = small(f"precision={precision}", "trainer.evaluate_only=true", f"checkpoint.load={last}")
    loaded = weights(attempt(tmp_path / "b", again).trainer)
    saved = torch.load(last, weights_only=True)["model"]
    assert all(torch.equal(saved[name], value) for name, value in loaded.items())
