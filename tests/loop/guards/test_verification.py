"""Silent data corruption in one process: what is found, what is left of it, and that looking for it changes nothing."""

import pytest
import torch

from manyheads.runner.checkpoint.rank.load import load
from manyheads.runner.errors import ConfigurationError, Kind
from manyheads.runner.loop.guards.corruption import (
    Corrupted,
    Digests,
    Mismatch,
    are_same,
    culprits,
    digest,
    other_replicas,
)
from manyheads.runner.loop.update import Update
from manyheads.runner.run.run_folder import RunFolder
from tests.in_process import small, train, typed, weights
from tests.loop.test_trainer import assert_same
from tests.planted import flip

SHORT = ("trainer.max_steps=12", "trainer.log_every=4")
VERIFIED = (*SHORT, "trainer.verify_every=3")
EACH = (*SHORT, "trainer.verify_every=1")
RICH = ("model=custom", "model._target_=tests.zoo.Rich", "trainer.grad_accumulation=2")


@pytest.fixture(autouse=True)
def plain_update(monkeypatch):
    """What a planted fault does to the class is undone."""
    monkeypatch.setattr(Update, "compute_gradients", Update.compute_gradients)


def planted(what: str, step: int) -> tuple[str, ...]:
    return (
        "+callbacks.flip._target_=tests.planted.Flip",
        f"+callbacks.flip.what={what}",
        f"+callbacks.flip.step={step}",
    )


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.complex64, torch.int64, torch.bool]
)
def test_a_digest_changes_with_every_bit(dtype):
    tensor = torch.arange(6).reshape(2, 3).to(dtype)
    before = digest(tensor).item()
    width = 8 * tensor.element_size() // (2 if dtype.is_complex else 1)
    raw = tensor.view(torch.uint8)
    for bit in range(0, width, 7):
        raw.view(-1)[bit // 8] ^= 1 << bit % 8
        assert digest(tensor).item() != before
        raw.view(-1)[bit // 8] ^= 1 << bit % 8
    assert digest(tensor).item() == before


def test_bits_are_compared_of_what_is_no_number_too():
    nan = torch.tensor([float("nan"), 0.0])
    assert are_same(nan, nan.clone())
    assert not are_same(torch.tensor([0.0]), torch.tensor([-0.0]))
    assert Digests({"a": nan, "b": nan}).differing(Digests({"a": nan, "c": nan})) == ["b", "c"]


@pytest.mark.parametrize(
    ("everyone", "expected"),
    [
        ([Mismatch("cpu", [], [], {}), Mismatch("cpu", [], [], {})], {}),
        # All ranks got what one of them had computed.
        ([Mismatch("cpu", [], ["w"], {}), Mismatch("cpu", ["w"], ["w"], {})], {1: "two computations of w differ"}),
        ([Mismatch("cpu", [], [], {}), Mismatch("cpu", [], ["w"], {})], {1: "the exchanged gradients of w differ"}),
        (
            [Mismatch("cpu", [], [], {"w": 1})] * 2 + [Mismatch("cpu", [], [], {"w": 2})],
            {2: "the exchanged gradients of w differ from those of other ranks"},
        ),
    ],
)
def test_who_is_to_blame(everyone, expected):
    found = culprits(everyone)
    assert found.keys() == expected.keys()
    assert all(found[rank].startswith(text) for rank, text in expected.items())


def test_of_two_replicas_that_differ_both_are_named():
    assert other_replicas([{"w": 1}, {"w": 2}]) == {0: ["w"], 1: ["w"]}
    assert other_replicas([{"w": 1}, {"w": 1}, {"w": 2}, {"w": 3}]) == {2: ["w"], 3: ["w"]}


@pytest.mark.parametrize("more", [RICH, ("precision=amp", "precision.dtype=float16", "trainer.clip_norm=0.5")])
def test_checking_changes_nothing(tmp_path, more):
    plain = train(tmp_path / "plain", small(*SHORT, *more))
    checked = train(tmp_path / "checked", small(*VERIFIED, *more))
    assert_same(weights(checked.trainer), weights(plain.trainer))
    assert "one of 3 updates is computed twice; kernels are deterministic here" in checked.folder.log.read_text()


@pytest.mark.parametrize("what", ["activation", "batch", "gradient", "exchange"])
def test_what_is_computed_wrong_is_named_and_not_stored(tmp_path, what):
    settings = small(*EACH, "checkpoint.every=5", *planted(what, 6))
    with pytest.raises(
        Corrupted, match=r"^silent data corruption in update 6: on rank 0 \(cpu\) .*features\.0\.weight"
    ) as found:
        train(tmp_path, settings)
    assert found.value.kind is Kind.CORRUPTED
    folder = RunFolder(tmp_path)
    assert load(folder.last_checkpoint)["progress"]["step"] == 5
    (file,) = folder.corruption.iterdir()
    assert f"Both are in corruption/{file.name}." in str(found.value)
    one, other = torch.load(file, weights_only=True)["features.0.weight"]
    assert one.shape == other.shape == (2, 3, 3, 3)
    assert not torch.equal(one, other)
    if what == "exchange":
        flip(one)
        assert torch.equal(one, other)


@pytest.mark.parametrize("what", ["weight", "optimizer"])
def test_what_changes_by_itself_is_named_and_not_stored(tmp_path, what):
    named = {"weight": r"features\.0\.weight", "optimizer": r"momentum_buffer of features\.0\.weight"}[what]
    with pytest.raises(Corrupted, match=rf"after update 6: on rank 0 \(cpu\) {named} changed"):
        train(tmp_path, small(*EACH, "checkpoint.every=3", *planted(what, 6)))
    assert load(RunFolder(tmp_path).last_checkpoint)["progress"]["step"] == 3  # though one was due after update 6


def test_retried_it_ends_as_if_nothing_had_been(tmp_path):
    plain = train(tmp_path / "plain", small(*SHORT, *RICH))
    retried = train(tmp_path / "retried", small(*EACH, *RICH, "trainer.on_corruption=retry", *planted("gradient", 6)))
    assert_same(weights(retried.trainer), weights(plain.trainer))
    assert "silent data corruption in update 6: on rank 0" in retried.folder.log.read_text()


def test_a_first_update_that_is_wrong_once_is_no_sign_of_other_kernels(tmp_path):
    with pytest.raises(Corrupted, match=r"in update 1: .*features\.0\.weight"):
        train(tmp_path, small(*EACH, *planted("gradient", 1)))


def test_what_no_computation_repeats_ends_a_retry_too(tmp_path):
    settings = small(*EACH, "trainer.on_corruption=retry", *planted("exchanges", 6))
    seen = train(tmp_path / "seen", settings)  # three times the same flip: nothing differs
    assert seen.trainer.progress.step == 12


def noisy(monkeypatch, size: float) -> None:
    """Kernels that are not deterministic."""
    compute, noise = Update.compute_gradients, torch.Generator().manual_seed(1)

    def computed(update, batches):
        found = compute(update, batches)
        for parameter in update.parameters:
            if parameter.grad is not None:
                parameter.grad *= 1 + size * torch.rand((), generator=noise)
        return found

    monkeypatch.setattr(Update, "compute_gradients", computed)


def test_kernels_that_are_not_deterministic_are_noticed_and_allowed_for(tmp_path, monkeypatch):
    noisy(monkeypatch, 1e-6)
    run = train(tmp_path / "run", small(*VERIFIED))
    assert run.trainer.progress.step == 12
    assert "kernels are not deterministic here, so gradients may differ by " in run.folder.log.read_text()
    with pytest.raises(
        Corrupted, match=r"in update 6: on rank 0 \(cpu\) the exchanged gradients of features\.0\.weight"
    ):
        train(tmp_path / "flipped", small(*EACH, *planted("exchange", 6)))


def test_swa_and_ema_change_weights_on_purpose(tmp_path):
    for average in ("trainer.swa_start=1", "trainer.ema_decay=0.9"):
        run = train(tmp_path / average, small(*EACH, average, "trainer.epochs=2", "trainer.max_steps=null"))
        assert run.trainer.done


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("parallel=local_sgd",), r"parallel=local_sgd averages weights between two updates.*or parallel=ddp"),
        (("parallel=ddp", "parallel.compression=powersgd"), r"carries errors from .*parallel\.compression=none"),
    ],
)
def test_what_cannot_be_computed_twice_is_refused(given, said):
    with pytest.raises(ConfigurationError, match=said):
        typed("trainer.verify_every=10", *given)
