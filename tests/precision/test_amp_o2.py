"""precision=amp precision.level=O2: half-precision weights whose fp32 masters are what is trained and kept."""

from pathlib import Path

import pytest
import torch
from torch import nn

from manyheads.launchers.launch import launch, prepare
from manyheads.runner.config.lookup import read_option
from manyheads.runner.precision.rank.master_weights import MasterWeights
from tests.in_process import attempt, config, opened, rows, small, train, weights
from tests.launchers.conftest import freeze
from tests.tail import each_once, tail, tailed

pytestmark = pytest.mark.ci

O2 = ("precision=amp", "precision.level=O2")
DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}
FP16 = (*O2, "precision.dtype=float16")
RICH = ("model=custom", "model._target_=tests.zoo.Rich")  # BatchNorm, dropout
DIGITS = ("data=digits", "trainer.device=cpu", "trainer.epochs=4", "optimizer.lr=0.05", "model.width=8")


def o2(dtype: str = "bfloat16") -> tuple[str, ...]:
    return (*O2, f"precision.dtype={dtype}")


def masters(trainer) -> MasterWeights:
    return trainer.update.precision.master_weights


@pytest.mark.parametrize(
    ("dtype", "summary"),
    [
        ("auto", "bfloat16 weights, fp32 master copies"),
        ("bfloat16", "bfloat16 weights, fp32 master copies"),
        ("float16", "float16 weights, fp32 master copies, with gradient scaler"),
    ],
)
def test_it_says_what_it_does(tmp_path, dtype, summary):
    with opened(tmp_path, small(*o2(dtype))) as trainer:
        assert trainer.update.precision.summary == summary


@pytest.mark.parametrize("dtype", DTYPES)
def test_formats(tmp_path, dtype):
    run = attempt(tmp_path, small(*o2(dtype), *RICH, "optimizer=adamw", "trainer.max_steps=2"))
    trainer, half, seen = run.trainer, DTYPES[dtype], set()
    body = trainer.update.model.body
    body[0].register_forward_hook(lambda _, inputs, output: seen.add(("convolution", inputs[0].dtype, output.dtype)))
    body[1].register_forward_hook(lambda _, inputs, output: seen.add(("norm", inputs[0].dtype, output.dtype)))
    trainer.update.scores.task.criterion.register_forward_hook(
        lambda _, inputs, output: seen.add(("loss", output.dtype))
    )
    run.train(seed=1, state=None)
    assert seen == {("convolution", torch.float32, half), ("norm", half, half), ("loss", torch.float32)}
    assert {p.dtype for p in body[1].parameters()} == {torch.float32}
    assert {body[1].running_mean.dtype, body[1].running_var.dtype} == {torch.float32}
    others = [p for module in (body[0], trainer.update.model.head) for p in module.parameters()]
    assert {p.dtype for p in others} == {half}
    assert {p.dtype for p in trainer.update.parameters} == {torch.float32}
    assert len(trainer.update.parameters) == len(list(trainer.update.model.parameters()))
    state = [value for entry in trainer.update.optimizer.state.values() for value in entry.values()]
    assert {value.dtype for value in state} == {torch.float32}
    assert set(trainer.update.optimizer.state) == set(trainer.update.parameters)


def test_the_weights_are_their_masters_rounded_and_the_masters_begin_unrounded(tmp_path):
    with opened(tmp_path / "fp32", small()) as plain:
        initial = weights(plain)
    run = attempt(tmp_path / "o2", small(*O2))
    assert all(torch.equal(weight, initial[name]) for name, weight in run.state.weights().items())
    run.train(seed=1, state=None)
    trained, rounded = run.state.weights(), weights(run.trainer)
    for name, weight in trained.items():
        assert weight.dtype is torch.float32
        assert not torch.equal(weight, initial[name])
        assert torch.equal(weight.bfloat16(), rounded[name])
    assert any(not torch.equal(weight, rounded[name].float()) for name, weight in trained.items())


@pytest.mark.parametrize(
    ("more", "dtype"),
    each_once(
        [(), ("trainer.grad_accumulation=2", "trainer.clip_norm=0.5"), ("optimizer=adamw", "optimizer.lr=0.001")],
        DTYPES,
    ),
)
def test_results_are_near_those_of_fp32(tmp_path, dtype, more):
    shared = more if "optimizer=adamw" in more else ("optimizer.lr=0.01", *more)
    true = train(tmp_path / "fp32", small(*shared))
    half = train(tmp_path / "half", small(*shared, *o2(dtype)))
    for column in ("train_loss", "val_loss"):
        for one, other in zip(rows(true.folder.epochs), rows(half.folder.epochs), strict=True):
            assert float(other[column]) == pytest.approx(float(one[column]), rel=0.01)


def accuracy(path, *more):
    return float(rows(train(path, config(*DIGITS, *more)).folder.epochs)[-1]["val_acc1"])


@pytest.fixture(scope="module")
def in_fp32(tmp_path_factory):
    return accuracy(tmp_path_factory.mktemp("fp32"))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", tailed(DTYPES, always=[]))
def test_the_digits_are_learned_as_in_fp32(tmp_path, in_fp32, dtype):
    assert in_fp32 > 85
    assert accuracy(tmp_path, *o2(dtype)) == pytest.approx(in_fp32, abs=4)


def test_small_updates_are_not_lost_in_rounding(tmp_path):
    # A thousandth of a bfloat16 weight's last digit, many times.
    run = attempt(tmp_path, small(*O2, "optimizer.lr=1e-6", "optimizer.momentum=0", "optimizer.weight_decay=0"))
    before = {name: weight.clone() for name, weight in run.state.weights().items()}
    run.train(seed=1, state=None)
    assert all(not torch.equal(weight, before[name]) for name, weight in run.state.weights().items())


@pytest.mark.parametrize("fused", ["false", "true"])
def test_an_overflow_skips_the_step(tmp_path, fused):
    options = ("precision.init_scale=1e30", f"optimizer.fused={fused}", "trainer.max_steps=1", "trainer.log_every=1")
    run = attempt(tmp_path, small(*FP16, *options))
    before, rounded = {name: w.clone() for name, w in run.state.weights().items()}, weights(run.trainer)
    run.train(seed=1, state=None)
    assert all(torch.equal(weight, before[name]) for name, weight in run.state.weights().items())
    assert all(torch.equal(weight, rounded[name]) for name, weight in weights(run.trainer).items())
    assert run.trainer.update.precision.state_dict()["scale"] == pytest.approx(0.5e30)
    assert rows(run.folder.steps)[0]["grad_norm"] in ("inf", "nan")
    assert all(p.grad is None for p in [*run.trainer.update.model.parameters(), *run.trainer.update.parameters])


@pytest.mark.parametrize(("fused", "on_nan"), each_once(["false", "true"], ["error", "skip"]))
def test_after_overflows_training_goes_on(tmp_path, on_nan, fused):
    scale = 2.0**24
    options = (f"precision.init_scale={scale}", f"trainer.on_nan={on_nan}", f"optimizer.fused={fused}")
    run = train(tmp_path, small(*FP16, *options, "trainer.epochs=3"))
    assert run.trainer.update.precision.state_dict()["scale"] < scale
    losses = [float(row["train_loss"]) for row in rows(run.folder.epochs)]
    assert losses[-1] < losses[0] - 0.1


def test_gradients_that_are_no_numbers_can_be_left_out_without_a_scaler(tmp_path):
    options = ("model=custom", "model._target_=tests.zoo.Rootless", "trainer.on_nan=skip", "trainer.max_steps=3")
    run = attempt(tmp_path, small(*O2, *options))
    before = {name: weight.clone() for name, weight in run.state.weights().items()}
    run.train(seed=1, state=None)
    assert run.folder.read_result()["skipped_steps"] == 3
    assert all(torch.equal(weight, before[name]) for name, weight in run.state.weights().items())


class Killed(Exception): ...


@pytest.mark.parametrize(("dtype", "optimizer"), each_once(DTYPES, ["sgd", "adamw"]))
def test_a_killed_run_resumes_to_the_same(tmp_path, dtype, optimizer):
    chosen = small(*o2(dtype), *RICH, f"optimizer={optimizer}", "optimizer.lr=0.01", "checkpoint.every=7")
    whole = train(tmp_path / "whole", chosen)
    run = attempt(tmp_path / "killed", chosen)
    make = run.trainer.make

    def dies(*arguments, **options):
        if run.trainer.progress.step == 25:
            raise Killed
        return make(*arguments, **options)

    run.trainer.make = dies
    with pytest.raises(Killed):
        run.train(seed=1, state=None)
    resumed = train(tmp_path / "killed", chosen)
    assert resumed.trainer.progress.step == 40
    expected, result = whole.folder.read_result(), resumed.folder.read_result()
    assert result["weights_sha256"] == expected["weights_sha256"]
    assert result["metrics"]["val_loss"] == expected["metrics"]["val_loss"]
    assert all(torch.equal(one, weights(whole.trainer)[name]) for name, one in weights(resumed.trainer).items())


def test_a_checkpoint_is_one_of_fp32(tmp_path):
    run = train(tmp_path / "o2", small(*O2, *RICH))
    path = run.folder.last_checkpoint
    state = torch.load(path, weights_only=True)["model"]
    with opened(tmp_path / "fp32", small(*RICH)) as plain:
        assert {name: value.dtype for name, value in state.items()} == {n: w.dtype for n, w in weights(plain).items()}
    losses = {}
    for name, more in {"fp32": (), "o2": O2, "dp": (*O2, "parallel=dp")}.items():
        evaluation = (*RICH, *more, "trainer.evaluate_only=true", f"checkpoint.load={path}")
        other = attempt(tmp_path / f"evaluated {name}", small(*evaluation))
        other.evaluate()
        assert other.folder.read_result()["weights_sha256"] == run.folder.read_result()["weights_sha256"]
        losses[name] = other.folder.read_result()["metrics"]["val_loss"]
    assert losses["o2"] == losses["dp"] == run.folder.read_result()["metrics"]["val_loss"]
    assert losses["fp32"] == pytest.approx(losses["o2"], rel=0.01)
    gone_on = train(tmp_path / "gone on", small(*RICH, f"checkpoint.load={path}"))
    assert gone_on.folder.read_result()["status"] == "completed"


@pytest.mark.parametrize("dtype", DTYPES)
def test_dp_computes_the_same(tmp_path, dtype):
    digests = {
        train(tmp_path / name, small(f"parallel={name}", *o2(dtype), *RICH)).folder.read_result()["weights_sha256"]
        for name in ("single", "dp")
    }
    assert len(digests) == 1


def test_an_optimizer_with_state_from_the_beginning(tmp_path):
    adagrad = ("optimizer=custom", "optimizer._target_=torch.optim.Adagrad", "+optimizer.initial_accumulator_value=0.1")
    run = attempt(tmp_path, small(*O2, *adagrad, "trainer.max_steps=3"))
    optimizer = run.trainer.update.optimizer
    assert set(optimizer.state) == set(run.trainer.update.parameters)
    assert {entry["sum"].dtype for entry in optimizer.state.values()} == {torch.float32}
    assert all(
        entry["sum"].flatten().tolist() == pytest.approx([0.1] * entry["sum"].numel(), rel=0.01)
        for entry in optimizer.state.values()
    )
    run.train(seed=1, state=None)
    assert all(entry["step"] == 3 for entry in optimizer.state.values())


def test_frozen_and_tied_weights_keep_their_digits(tmp_path):
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    model[0].bias.requires_grad_(False)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    weights = MasterWeights(torch.bfloat16)
    weights.convert(model)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    weights.give_to(optimizer)
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
    assert len(optimizer.param_groups[0]["params"]) == 2
    state = weights.state_dict(model)
    assert list(state) == list(before)
    assert all(torch.equal(value, before[name]) for name, value in state.items())


def test_formats_of_images_survive(tmp_path):
    with opened(tmp_path, small(*O2, "trainer.channels_last=true")) as trainer:
        kernel = next(p for p in trainer.update.parameters if p.ndim == 4)
        assert kernel.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.slow
@pytest.mark.parametrize("model", tailed(["resnet18", "convnext_tiny", "mobilenet_v3_small"], always=["resnet18"]))
def test_torchvision_models_take_steps(tmp_path, model):
    data = ("data=synthetic", "data.image_size=32", "data.num_classes=3", "data.train_samples=8", "data.val_samples=4")
    shared = (f"model={model}", *data, "data.batch_size=4", "trainer.device=cpu", "trainer.epochs=1")
    run = train(tmp_path, config(*shared, *FP16, "precision.init_scale=128"))
    assert run.trainer.progress.step == 2
    assert run.folder.read_result()["status"] == "completed"


@pytest.mark.slow
@pytest.mark.tail
def test_compiled_it_trains_as_well(tmp_path):
    shared = (*O2, "trainer.max_steps=4", "optimizer.lr=0.01")
    plain, compiled = (
        train(tmp_path / how, small(*shared, f"trainer.compile={how}")).folder.read_result()["metrics"]["val_loss"]
        for how in ("none", "default")
    )
    assert compiled == pytest.approx(plain, rel=0.01)


def test_the_plain_level_has_no_masters(tmp_path):
    with opened(tmp_path, small("precision=amp")) as trainer:
        assert not masters(trainer).masters
        assert list(trainer.update.model.parameters()) == trainer.update.parameters


def test_a_cpu_s_batch_norm_takes_half_precision(tmp_path):
    """What convert() relies on: fp32 statistics and weights, activations of any format."""
    for dtype in DTYPES.values():
        for affine in (True, False):
            norm = nn.BatchNorm2d(2, affine=affine)
            images = torch.randn(4, 2, 3, 3, dtype=dtype, requires_grad=True)
            norm(images).float().square().sum().backward()
            assert (norm(images).dtype, images.grad.dtype, norm.running_mean.dtype) == (dtype, dtype, torch.float32)


@pytest.mark.processes
@pytest.mark.parametrize(("dtype", "many"), [tail("float16", 2), tail("bfloat16", 3)])
def test_several_ranks_train_together(tmp_path: Path, dtype: str, many: int) -> None:
    shared = (*o2(dtype), "data.batch_size=48", "trainer.max_steps=20", "optimizer.lr=0.02", "trainer.device=cpu")
    shared = (*shared, "model.width=8")  # convolutions in fp16 are slow on CPUs
    losses = {}
    for ranks in (1, many):
        folder = freeze(tmp_path / str(ranks), *shared, "parallel=ddp", f"launcher.nproc_per_node={ranks}")
        launch(prepare(folder))
        losses[ranks] = [float(row["loss"]) for row in rows(folder.steps)]
        model = torch.load(folder.last_checkpoint, weights_only=True)["model"]
        assert {value.dtype for value in model.values()} == {torch.float32}
    assert losses[1][-1] < losses[1][0]
    assert losses[many] == pytest.approx(losses[1], rel=0.01)


@pytest.mark.parametrize("level", ["O1", "O2"])
def test_levels_are_the_option_s(level):
    assert read_option("precision", "amp")["level"] == "O1"
    with pytest.raises(Exception, match=r'precision\.level="O3" is not allowed\. Allowed: O1, O2'):
        config("precision=amp", "precision.level=O3")
    assert config("precision=amp", f"precision.level={level}")["precision"]["level"] == level
