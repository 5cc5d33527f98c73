"""precision=apex: with the real Apex where there is a GPU for it, elsewhere with tests/apex_stand_in."""

from contextlib import contextmanager

import pytest
import torch
from torch import nn
from torch.nn import functional

from manyheads.runner.errors import ConfigurationError
from tests import apex_library
from tests.apex_library import small
from tests.in_process import attempt, opened, rows, train, weights
from tests.in_process import small as plain
from tests.tail import tail

pytestmark = [pytest.mark.ci, pytest.mark.usefixtures("apex"), *apex_library.marks]

RICH = ("model=custom", "model._target_=tests.zoo.Rich")  # BatchNorm and dropout
LEVELS = ("O0", "O1", "O2", "O3")
STATIC = "precision.loss_scale=128.0"
HALF_PRECISION = {"O2", "O3"} | ({"O1"} if apex_library.IS_REAL else set())  # the stand-in's O1 casts nothing
MASTERS = ("precision.opt_level=O2", "precision.loss_scale=64.0")


def level(name: str, *others: str) -> tuple[str, ...]:
    return ("precision=apex", f"precision.opt_level={name}", *others)


def masters(trainer) -> list[torch.Tensor]:
    return list(trainer.update.precision.masters.values())


@pytest.mark.parametrize(
    ("overrides", "summary"),
    [
        (level("O0"), "Apex's O0, loss scale 1.0"),
        (level("O1"), "Apex's O1, dynamic loss scale"),
        (level("O1", STATIC), "Apex's O1, loss scale 128.0"),
        (level("O2"), "Apex's O2, dynamic loss scale"),
        (level("O3"), "Apex's O3, loss scale 1.0"),
        (level("O3", "precision.loss_scale=dynamic"), "Apex's O3, dynamic loss scale"),
    ],
)
def test_it_says_what_it_does(tmp_path, overrides, summary):
    with opened(tmp_path, small(*overrides)) as trainer:
        assert trainer.update.precision.summary == summary
        assert trainer.update.precision.skips_overflow is ("dynamic" in summary)


@pytest.mark.parametrize(
    ("overrides", "conv", "norm", "owned"),
    [
        (level("O0"), torch.float32, torch.float32, torch.float32),
        (level("O1"), torch.float32, torch.float32, torch.float32),
        (level("O2"), torch.float16, torch.float32, torch.float32),
        (level("O3"), torch.float16, torch.float16, torch.float16),
        (level("O3", "precision.keep_batchnorm_fp32=true"), torch.float16, torch.float32, None),
        (level("O3", "precision.master_weights=true"), torch.float16, torch.float16, torch.float32),
        (level("O2", "precision.keep_batchnorm_fp32=false"), torch.float16, torch.float16, torch.float32),
    ],
    ids=lambda value: " ".join(value[1:]) if isinstance(value, tuple) else "",
)
def test_formats(tmp_path, overrides, conv, norm, owned):
    # Fused, SGD of half-precision weights on CPUs does nothing with torch 2.6 to 2.10.
    plainly = ("optimizer.lr=0.01", "optimizer.fused=false")
    run = attempt(tmp_path, small(*overrides, *RICH, "trainer.max_steps=3", *plainly))
    seen = set()
    run.trainer.update.model.register_forward_hook(lambda _, inputs, output: seen.add((inputs[0].dtype, output.dtype)))
    before = weights(run.trainer)
    run.train(seed=1, state=None)
    body = run.trainer.update.model.body
    assert {p.dtype for p in [*body[0].parameters(), *run.trainer.update.model.head.parameters()]} == {conv}
    assert {p.dtype for p in body[1].parameters()} == {norm}
    assert owned is None or {p.dtype for p in run.trainer.update.parameters} == {owned}
    assert {images for images, _ in seen} == {torch.float32}
    if not (apex_library.IS_REAL and overrides[1].endswith("O1")):  # O1 leaves the last layer's output as it is
        assert {logits for _, logits in seen} == {torch.float32}
    after = run.state.weights()
    assert {w.dtype for w in after.values() if w.is_floating_point()} == {torch.float32}
    assert not any(torch.equal(before[name], after[name]) for name in ("body.0.weight", "body.1.weight", "head.weight"))


@pytest.mark.parametrize("accumulation", [1, tail(4)])
@pytest.mark.parametrize(
    "overrides", [level("O0"), tail(level("O0", STATIC)), tail(level("O1", STATIC)), level("O1"), level("O2")]
)
def test_results_are_those_of_fp32(tmp_path, overrides, accumulation):
    shared = ("optimizer.lr=0.01", f"trainer.grad_accumulation={accumulation}", "trainer.clip_norm=1.0")
    shared = (*shared, "model=custom", "model._target_=tests.zoo.Normalized")
    true = train(tmp_path / "fp32", plain(*shared, f"trainer.device={apex_library.DEVICE}"))
    run = train(tmp_path / "apex", small(*shared, *overrides))
    tolerance = 0.02 if overrides[1].partition("=")[2] in HALF_PRECISION else 1e-5
    for one, other in zip(rows(true.folder.steps), rows(run.folder.steps), strict=True):
        assert float(other["loss"]) == pytest.approx(float(one["loss"]), rel=tolerance)
        assert float(other["grad_norm"]) == pytest.approx(float(one["grad_norm"]), rel=tolerance)
    for name, value in run.state.weights().items():
        assert torch.allclose(value, true.state.weights()[name].to(value), atol=tolerance), name


@pytest.mark.parametrize("overrides", [level("O1"), level("O2"), level("O2", *MASTERS[1:]), level("O3", STATIC)])
@pytest.mark.parametrize(("accumulation", "stop"), [tail(1, 1), (2, 13)])
def test_resumed_it_ends_with_the_same_bits(tmp_path, overrides, accumulation, stop):
    options = small(*RICH, *overrides, f"trainer.grad_accumulation={accumulation}", "checkpoint.every=1")
    whole, resumed = apex_library.ends(tmp_path, options, killed_after=stop)
    assert resumed == whole


def test_a_checkpoint_holds_the_masters_and_amp_s_state(tmp_path):
    run = train(tmp_path, small(*level("O2"), *RICH, "trainer.max_steps=5"))
    saved = torch.load(run.folder.last_checkpoint, weights_only=True)
    (scaler,) = saved["precision"].values()
    assert scaler["loss_scale"] <= 2.0**16
    assert 0 < scaler["unskipped"] <= 5
    held = saved["model"]["body.0.weight"]
    assert held.dtype is torch.float32
    assert torch.equal(held.to(apex_library.DEVICE), masters(run.trainer)[0])
    assert not torch.equal(held, held.half().float()), "the masters have more digits than the weights"
    other = train(tmp_path / "other", small(*level("O0"), *RICH, f"checkpoint.load={run.folder.last_checkpoint}"))
    assert other.folder.read_result()["status"] == "completed"


@pytest.mark.parametrize("name", ["O1", "O2"])
def test_an_overflow_leaves_one_update_out_and_halves_the_scale(tmp_path, name):
    run = attempt(tmp_path, small(*level(name), "trainer.max_steps=2", "trainer.log_every=1"))
    trainer, before = run.trainer, run.state.weights()
    before = {key: value.clone() for key, value in before.items()}
    steps = trainer.train.epoch(0, 0)
    batch = next(steps)
    trainer.update.scores.task.criterion = Exploding()
    trainer.update([batch], number=0, wants_norm=True)
    assert all(torch.equal(value, before[key]) for key, value in run.state.weights().items())
    assert trainer.update.precision.state_dict()["loss_scaler0"] == {"loss_scale": 2.0**15, "unskipped": 0}
    trainer.update.scores.task.criterion = nn.CrossEntropyLoss()
    trainer.update([batch], number=0, wants_norm=True)
    assert all(not torch.equal(value, before[key]) for key, value in run.state.weights().items())
    trainer.reporter.recorder.close()


@pytest.mark.parametrize("on_nan", ["error", "skip"])
def test_after_overflows_training_goes_on(tmp_path, on_nan):
    run = attempt(tmp_path, small(*level("O1"), f"trainer.on_nan={on_nan}"))
    scale = 2.0**24 if apex_library.IS_REAL else 2.0**130  # too much for fp16, and for the stand-in's fp32
    run.trainer.update.precision.load_state_dict({"loss_scaler0": {"loss_scale": scale, "unskipped": 0}})
    run.train(seed=1, state=None)
    assert run.trainer.update.precision.state_dict()["loss_scaler0"]["loss_scale"] < scale
    losses = [float(row["train_loss"]) for row in rows(run.folder.epochs)]
    assert losses[-1] < losses[0]


def test_throw_away_steps_leave_no_trace_in_the_scale(tmp_path):
    with opened(tmp_path, small(*level("O2"))) as trainer:
        trainer.update.scores.task.criterion, scale = Exploding(), trainer.update.precision.state_dict()
        trainer.update.parallel.prime = lambda step: (step(), step())
        trainer.update.prime(trainer.train.example)
        assert trainer.update.precision.state_dict() == scale
        trainer.update.scores.task.criterion, before = (
            nn.CrossEntropyLoss(),
            [p.clone() for p in trainer.update.parameters],
        )
        trainer.update([next(trainer.train.epoch(0, 0))], number=0, wants_norm=False)
        assert all(not torch.equal(p, q) for p, q in zip(before, trainer.update.parameters, strict=True))


def test_clipping_is_of_what_the_optimizer_owns(tmp_path):
    with opened(tmp_path, small(*level("O2"), *RICH, "trainer.clip_norm=0.001")) as trainer:
        owned = [id(p) for group in trainer.update.optimizer.param_groups for p in group["params"]]
        assert [id(p) for p in trainer.update.parameters] == owned
        assert len(masters(trainer)) == 4  # the convolution's and the head's
        before = [p.detach().clone() for p in trainer.update.parameters]
        trainer.update([next(trainer.train.epoch(0, 0))], number=0, wants_norm=False)
        pairs = zip(before, trainer.update.parameters, strict=True)
        moved = torch.cat([(p - q.detach()).flatten() for p, q in pairs]).norm()
        assert 0 < float(moved) <= 0.05 * (0.001 + 1e-4 * 10)  # lr x (clipped gradient and weight decay)


def test_what_o1_patches_is_undone_when_the_run_ends(tmp_path):
    original = functional.conv2d
    with opened(tmp_path / "O1", small(*level("O1"))):
        assert functional.conv2d is not original
    with opened(tmp_path / "again", small(*level("O1"))):
        assert functional.conv2d is not original
    assert functional.conv2d is original


def test_what_o1_patches_is_undone_when_the_run_cannot_be_built(tmp_path):
    original = functional.conv2d
    with pytest.raises(ConfigurationError, match="loss"):
        attempt(tmp_path, small(*level("O1"), "loss._target_=torch.nn.Nothing"))
    assert functional.conv2d is original


class Spy:
    """Writes down when the parts of a step are called, in the real Apex and in the stand-in."""

    def __init__(self, trainer, monkeypatch):
        from apex import amp

        self.calls, self.trainer = [], trainer
        scale_loss = amp.scale_loss

        @contextmanager
        def scaled(loss, optimizer, delay_unscale=False):
            self.calls.append("scale, delayed" if delay_unscale else "scale")
            with scale_loss(loss, optimizer, delay_unscale=delay_unscale) as result:
                yield result
            self.calls.append("end")

        monkeypatch.setattr(amp, "scale_loss", scaled)
        for owner, name in (
            (trainer.update.parallel, "synchronize"),
            (trainer.update, "gradient_norm"),
            (trainer.update.parallel, "stepping"),
            (trainer.update.optimizer, "step"),
        ):
            monkeypatch.setattr(owner, name, self.noting(name, getattr(owner, name)))

    def noting(self, name, method):
        def call(*arguments, **options):
            self.calls.append(name)
            return method(*arguments, **options)

        return call


@pytest.mark.parametrize("name", LEVELS)
def test_the_documented_order(tmp_path, monkeypatch, name):
    """Accumulate with delayed unscaling, exchange inside of the last scale_loss, clip after it, then step."""
    with opened(tmp_path, small(*level(name, STATIC), "trainer.grad_accumulation=2")) as trainer:
        spy = Spy(trainer, monkeypatch)
        batches = trainer.train.epoch(0, 0)
        trainer.update([next(batches), next(batches)], number=0, wants_norm=True)
    delayed = ["scale, delayed", "end"]
    assert spy.calls == [*delayed, "scale", "synchronize", "end", "gradient_norm", "stepping", "step"]


REFUSED = {
    "wrapped": "Incoming model is an instance of",
    "twice": "only be passed through amp.initialize once",
    "half": "Found param weight with type",
    "O4": "Unexpected optimization level",
}
ONLY_BY_THE_STAND_IN = {  # Apex remembers an earlier test's initialize, and leaves the last one to the user's care
    "too early": "has not been initialized",
    "delayed": r"cannot be called after delay_unscale=True",
}


@pytest.mark.parametrize("misuse", [*REFUSED, *([] if apex_library.IS_REAL else ONLY_BY_THE_STAND_IN)])
def test_misuse_is_refused(misuse):
    with pytest.raises(RuntimeError, match=(REFUSED | ONLY_BY_THE_STAND_IN)[misuse]):
        use(misuse)


def use(misuse: str) -> None:
    from apex import amp

    model = nn.Linear(2, 2).to(apex_library.DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if misuse == "too early":
        amp.scale_loss(torch.ones(()), optimizer).__enter__()
    model = nn.DataParallel(model) if misuse == "wrapped" else model.half() if misuse == "half" else model
    model, optimizer = amp.initialize(model, optimizer, opt_level="O4" if misuse == "O4" else "O2", verbosity=0)
    if misuse == "twice":
        amp.initialize(nn.Linear(2, 2).to(apex_library.DEVICE), optimizer, opt_level="O2", verbosity=0)
    loss = model(torch.ones(1, 2, device=apex_library.DEVICE)).sum()
    with amp.scale_loss(loss, optimizer, delay_unscale=True) as scaled:
        scaled.backward()
    optimizer.step()


class Exploding(nn.Module):
    """A loss whose gradient overflows as soon as it is scaled."""

    def forward(self, logits, targets):
        return logits.sum() * 1e38
