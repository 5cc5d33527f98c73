"""The loop against loops written by hand, and every key of the trainer section."""

import math
import signal
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from manyheads.runner.data.keys import permutation
from manyheads.runner.data.rank.input_transform import InputTransform
from manyheads.runner.data.synthetic import Synthetic
from manyheads.runner.model.rank.small_cnn import SmallCNN
from tests.in_process import attempt, build_dataset, opened, rows, small, train, weights
from tests.zoo import Noise

PLAIN = ("optimizer.weight_decay=0.0005", "trainer.max_steps=20")
NOISE = ("data=custom", "data._target_=tests.zoo.Noise", "data.num_workers=0", "data.batch_size=8")


@pytest.fixture(autouse=True)
def process_as_before():
    yield
    torch.autograd.set_detect_anomaly(False)
    torch.use_deterministic_algorithms(False)


def synthetic(*, train: bool, classes: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    """All images of a split as the model gets them, and their classes."""
    data = Synthetic(image_size=8, num_classes=classes, train_samples=160, val_samples=37)
    samples = build_dataset(data, train=train)
    images, targets = samples.batch(np.arange(len(samples)), np.zeros(len(samples), np.uint64))
    # x / 255, less 0.5, over 0.5: in one product and one sum, as on the way to the model
    return images.to(torch.float32) * torch.tensor(1 / 127.5).float() - 1, targets


def by_hand(
    images, targets, *, steps, total, batch=8, clip=math.inf, leave_out=(), loss=cross_entropy, epoch_size=None
):
    """Plain PyTorch: momentum SGD under a cosine, over the samples in the order of the seed."""
    torch.manual_seed(1)
    model = SmallCNN(num_classes=3, width=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=0.0005, fused=True)
    per_epoch = epoch_size or len(targets) // batch
    for step in range(steps):
        order = permutation(len(targets), seed=1, epoch=step // per_epoch)
        at = step % per_epoch * batch
        chosen = torch.from_numpy(order[at : at + batch].astype(np.int64))
        optimizer.param_groups[0]["lr"] = 0.05 * (1 + math.cos(math.pi * step / total)) / 2
        loss(model(images[chosen]), targets[chosen]).backward()
        nn.utils.clip_grad_norm_(model.parameters(), clip) if clip < math.inf else None
        if step not in leave_out:
            optimizer.step()
        optimizer.zero_grad()
    return model.state_dict()


def assert_same(one: dict, other: dict) -> None:
    assert one.keys() == other.keys()
    for name in one:
        assert torch.equal(one[name], other[name]), name


def test_the_loop_is_the_handwritten_one_bit_for_bit(tmp_path):
    run = train(tmp_path, small(*PLAIN))
    assert run.trainer.progress.step == 20
    assert_same(weights(run.trainer), by_hand(*synthetic(train=True), steps=20, total=20))


def test_an_epoch_s_last_incomplete_batch_is_a_batch_of_its_size(tmp_path):
    config = small(*NOISE, "data.drop_last=false", "optimizer.weight_decay=0.0005")
    run = train(tmp_path, config)
    noise = Noise(split="train")
    assert len(noise) % 8 == 1
    assert run.trainer.progress.step == 12
    assert run.trainer.progress.samples == 82
    expected = by_hand(noise.images, torch.tensor(noise.targets), steps=12, total=12, epoch_size=6)
    assert_same(weights(run.trainer), expected)


def test_clip_norm_clips_as_pytorch_does(tmp_path):
    run = train(tmp_path, small(*PLAIN, "trainer.clip_norm=0.3"))
    expected = by_hand(*synthetic(train=True), steps=20, total=20, clip=0.3)
    assert_same(weights(run.trainer), expected)
    unclipped = by_hand(*synthetic(train=True), steps=20, total=20)
    assert not torch.equal(expected["classifier.weight"], unclipped["classifier.weight"])
    norms = [float(row["grad_norm"]) for row in rows(run.folder.steps)]
    assert max(norms) > 0.3  # what is written is the norm before clipping


def test_the_norm_written_is_that_of_the_logged_update(tmp_path):
    run = train(tmp_path, small("trainer.log_every=1", "trainer.max_steps=1"))
    images, targets = synthetic(train=True)
    torch.manual_seed(1)
    model = SmallCNN(num_classes=3, width=2)
    chosen = torch.from_numpy(permutation(160, seed=1, epoch=0)[:8].astype(np.int64))
    loss = cross_entropy(model(images[chosen]), targets[chosen])
    loss.backward()
    norm = torch.cat([p.grad.flatten() for p in model.parameters()]).norm()
    (row,) = rows(run.folder.steps)
    assert float(row["grad_norm"]) == pytest.approx(float(norm), rel=1e-6)
    assert float(row["loss"]) == pytest.approx(loss.item(), rel=1e-6)


@pytest.mark.parametrize("drop_last", ["true", "false"])
def test_accumulation_gives_the_same_weights(tmp_path, drop_last):
    odd = ("precision=fp64", f"data.drop_last={drop_last}", "data.train_samples=157", "trainer.clip_norm=0.5")
    one = train(tmp_path / "one", small(*odd, "trainer.grad_accumulation=1"))
    four = train(tmp_path / "four", small(*odd, "trainer.grad_accumulation=4"))
    for name, weight in weights(one.trainer).items():
        torch.testing.assert_close(weights(four.trainer)[name], weight, rtol=0, atol=1e-12)
    assert one.trainer.progress.samples == four.trainer.progress.samples == (152, 157)[drop_last == "false"] * 2
    for a, b in zip(rows(one.folder.steps), rows(four.folder.steps), strict=True):
        for column in ("loss", "lr", "grad_norm", "samples"):
            assert float(a[column]) == pytest.approx(float(b[column]), rel=1e-9)


def test_a_nan_loss_ends_the_run_with_a_message_that_helps(tmp_path):
    run = attempt(tmp_path, small(*NOISE, "+data.nan=7"))
    with pytest.raises(FloatingPointError, match=r"the loss became nan between step .*optimizer\.lr.*on_nan=skip"):
        run.train(seed=1, state=None)
    assert not run.folder.last_checkpoint.exists()  # no checkpoint of spoilt weights


def test_on_nan_skip_leaves_out_the_poisoned_updates_and_only_those(tmp_path):
    config = small(*NOISE, "+data.nan=7", "trainer.on_nan=skip", "optimizer.weight_decay=0.0005")
    run = train(tmp_path, config)
    noise = Noise(split="train", nan=7)
    order = np.concatenate([permutation(41, seed=1, epoch=epoch)[:40] for epoch in range(2)])
    poisoned = (np.flatnonzero(order == 7) // 8).tolist()
    assert 1 <= len(poisoned) <= 2
    expected = by_hand(noise.images, torch.tensor(noise.targets), steps=10, total=10, leave_out=poisoned)
    assert_same(weights(run.trainer), expected)
    result = run.folder.read_result()
    assert result["skipped_steps"] == len(poisoned)
    assert result["steps"] == 10
    assert result["samples_seen"] == 80 - 8 * len(poisoned)
    assert all(math.isfinite(float(row["train_loss"])) for row in rows(run.folder.epochs))


def test_an_update_that_is_left_out_teaches_batchnorm_nothing(tmp_path):
    rich = ("model=custom", "model._target_=tests.zoo.Rich", "trainer.on_nan=skip", "trainer.log_every=1")
    run = train(tmp_path, small(*NOISE, "+data.nan=7", *rich))
    assert run.trainer.progress.skipped > 0
    assert all(torch.isfinite(value).all() for value in weights(run.trainer).values())
    assert all(math.isfinite(float(row["val_loss"])) for row in rows(run.folder.epochs))


def test_an_interval_of_skipped_updates_only_is_written_as_such(tmp_path):
    config = small(*NOISE, "+data.nan=7", "trainer.on_nan=skip", "trainer.log_every=1")
    run = train(tmp_path, config)
    losses = [float(row["loss"]) for row in rows(run.folder.steps)]
    assert sum(map(math.isnan, losses)) == run.trainer.progress.skipped > 0


def test_label_smoothing_is_the_loss_s(tmp_path):
    run = train(tmp_path, small(*PLAIN, "trainer.label_smoothing=0.2"))
    smooth = partial(cross_entropy, label_smoothing=0.2)
    assert_same(weights(run.trainer), by_hand(*synthetic(train=True), steps=20, total=20, loss=smooth))


def test_channels_last_changes_the_memory_format_and_not_the_results(tmp_path):
    shared = ("precision=fp64", "trainer.max_steps=5")
    plain = train(tmp_path / "plain", small(*shared))
    formats = []
    run = attempt(tmp_path / "last", small(*shared, "trainer.channels_last=true"))
    convolution = run.trainer.update.model.features[0]
    convolution.register_forward_pre_hook(
        lambda _, inputs: formats.append(inputs[0].is_contiguous(memory_format=torch.channels_last))
    )
    run.train(seed=1, state=None)
    assert formats
    assert all(formats)
    assert convolution.weight.is_contiguous(memory_format=torch.channels_last)
    for name, weight in weights(plain.trainer).items():
        torch.testing.assert_close(weights(run.trainer)[name], weight, rtol=0, atol=1e-12)


def test_detect_anomaly_names_the_operation(tmp_path):
    options = ("model=custom", "model._target_=tests.zoo.Rootless", *NOISE)
    run = attempt(tmp_path, small(*options, "trainer.detect_anomaly=true"))
    with pytest.warns(UserWarning, match="SqrtBackward0"), pytest.raises(RuntimeError, match="SqrtBackward0"):
        run.train(seed=1, state=None)


def test_deterministic_switches_on_deterministic_algorithms(tmp_path):
    with opened(tmp_path / "on", small("trainer.deterministic=true")):
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.backends.cudnn.benchmark
    with opened(tmp_path / "off", small()):
        assert not torch.are_deterministic_algorithms_enabled()


def test_max_steps_ends_like_an_epoch(tmp_path):
    run = train(tmp_path, small("trainer.max_steps=13"))
    assert [row["step"] for row in rows(run.folder.steps)] == ["8", "13"]
    (epoch,) = rows(run.folder.epochs)
    assert (epoch["epoch"], epoch["step"], epoch["val_samples"]) == ("1", "13", "37")
    state = torch.load(run.folder.last_checkpoint, weights_only=True)
    assert (state["progress"]["step"], state["progress"]["epoch"]) == (13, 1)
    assert run.folder.best_checkpoint.exists()
    result = run.folder.read_result()
    assert (result["status"], result["steps"], result["epochs"]) == ("completed", 13, 1)


def test_max_steps_on_an_epoch_s_end_makes_no_empty_epoch(tmp_path):
    run = train(tmp_path, small("trainer.max_steps=20"))
    assert [row["step"] for row in rows(run.folder.epochs)] == ["20"]


@pytest.mark.parametrize(("every", "evaluated"), [(0, []), (1, [1, 2, 3]), (2, [2, 3]), (3, [3])])
def test_evaluate_every(tmp_path, every, evaluated):
    run = train(tmp_path, small(f"trainer.evaluate_every={every}", "trainer.epochs=3", "data.train_samples=16"))
    table = rows(run.folder.epochs)
    assert [int(row["epoch"]) for row in table] == [1, 2, 3]
    assert [int(row["epoch"]) for row in table if row["val_samples"] == "37"] == evaluated
    assert [int(row["epoch"]) for row in table if row["val_loss"]] == evaluated
    assert run.folder.best_checkpoint.exists() == bool(evaluated)
    assert (run.folder.read_result()["best"] is None) == (not evaluated)


def test_evaluation_agrees_with_brute_force(tmp_path):
    with opened(tmp_path, small("data.num_classes=10", "precision=fp64")) as trainer:
        measured = trainer.evaluate()
        images, targets = synthetic(train=False, classes=10)
        with torch.no_grad():
            logits = trainer.update.model(images.double())
    ranks = (logits > logits.gather(1, targets[:, None])).sum(dim=1)
    assert measured["val_samples"] == 37
    assert measured["val_loss"] == pytest.approx(float(cross_entropy(logits, targets)), rel=1e-6)
    assert measured["val_acc1"] == pytest.approx(100 * float((ranks < 1).double().mean()))
    assert measured["val_acc5"] == pytest.approx(100 * float((ranks < 5).double().mean()))
    assert 0 < measured["val_acc1"] < measured["val_acc5"] < 100


def test_evaluation_does_not_train(tmp_path):
    options = ("model=custom", "model._target_=tests.zoo.Rich")
    with opened(tmp_path, small(*options)) as trainer:
        before, state = weights(trainer), torch.get_rng_state()
        first = trainer.evaluate()
        assert trainer.evaluate()["val_loss"] == first["val_loss"]
        assert_same(weights(trainer), before)
        assert torch.equal(torch.get_rng_state(), state)


def test_training_metrics_are_means_over_all_samples(tmp_path):
    """A learning rate of nothing but rounding, so that the loss of an epoch is that of the first weights."""
    config = small("optimizer.lr=1e-30", "trainer.epochs=1", "precision=fp64", "data.batch_size=24")
    config["data"]["drop_last"] = False
    run = train(tmp_path, config)
    images, targets = synthetic(train=True)
    with torch.no_grad():
        logits = run.trainer.update.model(images.double())
    (row,) = rows(run.folder.epochs)
    assert float(row["train_loss"]) == pytest.approx(float(cross_entropy(logits, targets)), rel=1e-6)
    assert float(row["train_acc1"]) == pytest.approx(100 * float((logits.argmax(1) == targets).double().mean()))


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_request_to_stop_ends_training_after_the_update_with_a_checkpoint(tmp_path, signum):
    run = attempt(tmp_path, small("checkpoint.every=5epochs"))
    run.trainer.heartbeat.stop_signal = signum
    run.train(seed=1, state=None)
    assert run.trainer.stop.signal == signum
    assert run.trainer.progress.step == 1
    assert torch.load(run.folder.last_checkpoint, weights_only=True)["progress"]["step"] == 1
    result = run.folder.read_result()
    assert (result["status"], result["signal"], result["steps"]) == ("interrupted", signum, 1)


def test_a_long_log_window_has_one_row(tmp_path):
    options = ("trainer.log_every=80", "data.train_samples=960", "trainer.epochs=1", "precision=fp64")
    whole = rows(train(tmp_path / "whole", small(*options)).folder.steps)
    parts = rows(train(tmp_path / "parts", small(*options, "trainer.log_every=40")).folder.steps)
    assert [int(row["step"]) for row in whole] == [80, 120]
    assert float(whole[0]["loss"]) == pytest.approx((float(parts[0]["loss"]) + float(parts[1]["loss"])) / 2)


def test_each_update_beats(tmp_path):
    run = train(tmp_path, small("trainer.max_steps=7", "checkpoint.every=0"))
    assert run.trainer.heartbeat.beats() == 7 + 5  # evaluation: 37 samples in batches of 8


def test_images_are_normalized_on_the_way_in(tmp_path):
    with opened(tmp_path, small("precision=fp64")) as trainer:
        input_transform = trainer.train.input_transform
        batch = next(trainer.train.epoch(0))
    assert isinstance(input_transform, InputTransform)
    chosen = permutation(160, seed=1, epoch=0)[:8].astype(np.int64)
    samples = build_dataset(Synthetic(image_size=8, num_classes=3, train_samples=160, val_samples=37), train=True)
    raw = samples.batch(chosen, np.zeros(8, np.uint64))[0].double()
    torch.testing.assert_close(batch.inputs, (raw / 255 - 0.5) / 0.5, rtol=0, atol=1e-12)
    assert batch.inputs.dtype == torch.float64
