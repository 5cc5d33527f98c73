"""Each option of conf/precision trains, and computes in the formats that it says."""

import pytest
import torch
from torch import nn

from manyheads.runner.config.lookup import options
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.precision.rank.amp import check_autocast
from tests.in_process import attempt, config, opened, rows, small, train, weights

# Of each option: what it says, and the dtype of weights, of images, of what a convolution puts out.
COMPUTES = {
    "fp32": ("float32", torch.float32, torch.float32, torch.float32),
    "fp64": ("float64", torch.float64, torch.float64, torch.float64),
    "bf16": ("bfloat16 autocast", torch.float32, torch.float32, torch.bfloat16),
    "amp": ("bfloat16 autocast", torch.float32, torch.float32, torch.bfloat16),
}
FP16 = ("precision=amp", "precision.dtype=float16")
ONLY_WITH_CUDA = ("tf32",)
ELSEWHERE = ("apex",)  # tests/precision/test_apex.py


def test_every_option_is_known_here():
    assert set(options("precision")) == {*COMPUTES, *ONLY_WITH_CUDA, *ELSEWHERE}


def watch(model: nn.Module) -> tuple[set, set]:
    """The dtypes of what goes into and comes out of the first convolution from now on."""
    images, activations = set(), set()
    model.features[0].register_forward_pre_hook(lambda _, inputs: images.add(inputs[0].dtype))
    model.features[0].register_forward_hook(lambda _, inputs, output: activations.add(output.dtype))
    return images, activations


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        *(pytest.param([f"precision={name}"], expected, id=name) for name, expected in COMPUTES.items()),
        pytest.param(
            FP16,
            ("float16 autocast with gradient scaler", torch.float32, torch.float32, torch.float16),
            id="amp float16",
        ),
    ],
)
def test_an_option_trains_in_the_formats_that_it_says(tmp_path, overrides, expected):
    run = attempt(tmp_path, small(*overrides, "trainer.max_steps=2"))
    summary, weight_dtype, image_dtype, activation_dtype = expected
    before = weights(run.trainer)
    images, activations = watch(run.trainer.update.model)
    assert run.trainer.update.precision.summary == summary
    run.train(seed=1, state=None)
    assert run.trainer.progress.step == 2
    assert (images, activations) == ({image_dtype}, {activation_dtype})  # training and evaluation alike
    after = weights(run.trainer)
    assert {weight.dtype for weight in after.values()} == {weight_dtype}
    assert {p.grad.dtype for p in run.trainer.update.model.parameters() if p.grad is not None} <= {weight_dtype}
    assert all(not torch.equal(after[name], before[name]) for name in before)


def test_the_initial_weights_are_the_same_in_every_precision(tmp_path):
    digests = []
    for number, overrides in enumerate([["precision=fp32"], ["precision=bf16"], ["precision=amp"], FP16]):
        with opened(tmp_path / str(number), small(*overrides)) as trainer:
            digests.append(weights(trainer))
    with opened(tmp_path / "fp64", small("precision=fp64")) as trainer:
        digests.append({name: weight.float() for name, weight in weights(trainer).items()})
    for other in digests[1:]:
        assert all(torch.equal(weight, digests[0][name]) for name, weight in other.items())


def test_fp32_means_fp32(tmp_path):
    torch.set_float32_matmul_precision("high")
    with opened(tmp_path, small("precision=fp32")):
        assert torch.get_float32_matmul_precision() == "highest"
        assert not torch.backends.cudnn.allow_tf32


def test_tf32_without_a_gpu_is_refused():
    with pytest.raises(ConfigurationError, match=r"precision=tf32: .*no NVIDIA GPU.*precision=fp32"):
        config("precision=tf32")


def test_an_overflow_skips_the_step_and_lowers_the_scale(tmp_path):
    run = attempt(tmp_path, small(*FP16, "precision.init_scale=1e30", "trainer.max_steps=1", "trainer.log_every=1"))
    before = weights(run.trainer)
    run.train(seed=1, state=None)
    for name, weight in weights(run.trainer).items():
        assert torch.equal(weight, before[name])
    assert run.trainer.update.precision.state_dict()["scale"] == pytest.approx(0.5e30)
    (row,) = rows(run.folder.steps)
    assert row["grad_norm"] in ("inf", "nan")
    assert float(row["loss"]) < 2  # the loss itself is fine


@pytest.mark.parametrize("on_nan", ["error", "skip"])
def test_after_overflows_training_goes_on(tmp_path, on_nan):
    scale = 2.0**24
    options = (*FP16, f"precision.init_scale={scale}", "trainer.epochs=3", f"trainer.on_nan={on_nan}")
    run = train(tmp_path, small(*options))
    assert run.trainer.update.precision.state_dict()["scale"] < scale
    losses = [float(row["train_loss"]) for row in rows(run.folder.epochs)]
    assert losses[-1] < losses[0] - 0.1


def test_the_scale_grows_after_growth_interval_updates(tmp_path):
    options = (*FP16, "precision.init_scale=4.0", "precision.growth_interval=5", "trainer.max_steps=11")
    run = train(tmp_path, small(*options))
    assert run.trainer.update.precision.state_dict()["scale"] == 16.0


def test_the_gradients_are_at_their_true_size_when_they_are_clipped(tmp_path):
    shared = ("trainer.max_steps=1", "trainer.log_every=1")
    true = train(tmp_path / "fp32", small(*shared))
    scaled = train(tmp_path / "fp16", small(*shared, *FP16))
    norms = [float(rows(run.folder.steps)[0]["grad_norm"]) for run in (true, scaled)]
    assert norms[1] == pytest.approx(norms[0], rel=0.01)


@pytest.mark.parametrize("overrides", [["precision=bf16"], ["precision=amp"], FP16])
def test_half_precision_results_are_near_those_of_fp32(tmp_path, overrides):
    true = train(tmp_path / "fp32", small("optimizer.lr=0.01"))
    half = train(tmp_path / "half", small("optimizer.lr=0.01", *overrides))
    for column in ("train_loss", "val_loss"):
        for one, other in zip(rows(true.folder.epochs), rows(half.folder.epochs), strict=True):
            assert float(other[column]) == pytest.approx(float(one[column]), rel=0.01)


def test_a_format_that_the_device_cannot_train_in_is_refused():
    with pytest.raises(ConfigurationError, match=r"precision\.dtype=float16: this meta device .*Use precision=fp32"):
        check_autocast(torch.device("meta"), torch.float16)
