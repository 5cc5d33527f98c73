"""A step of the task's own: by hand, with accumulation and mixed precision, resumed, and what is refused."""

import copy
import math

import pytest
import torch
from torch.nn.functional import mse_loss, normalize

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.loop.own_step.context import StepContext
from manyheads.runner.loop.preflight import refusal
from tests.in_process import attempt, config, opened, rows, train, typed, weights
from tests.loop.own_step import zoo
from tests.loop.own_step.configs import BYOL, CONTRASTIVE, GAN, TASKS, ZOO, of

SHORT = ("trainer.max_steps=4", "precision=fp64", "scheduler=constant")


def losses(run) -> list[float]:
    return [float(row["loss"]) for row in rows(run.folder.steps)]


def assert_same(one: dict, other: dict) -> None:
    for name, weight in one.items():
        assert torch.equal(weight, other[name]), name


def updates(path, settings) -> list:
    """The batches of the first epoch, with the noise that a step draws for each."""
    with opened(path, config(*settings)) as trainer:
        found = []
        for number, (batch,) in enumerate(trainer.updates(trainer.train.epoch(0))):
            context = StepContext(trainer.update, batch, number, training=True)
            found.append((batch.inputs, context))
        return found


class TestAGAN:
    def test_is_trained_as_by_hand(self, tmp_path):
        run = train(tmp_path / "run", config(*GAN, *SHORT))
        torch.manual_seed(1)
        pair = zoo.Pair().double()
        of_g = torch.optim.Adam(pair.generator.parameters(), lr=0.01, fused=True)
        of_d = torch.optim.Adam(pair.discriminator.parameters(), lr=0.02, fused=True)
        expected = []
        for batch, context in updates(tmp_path / "batches", (*GAN, *SHORT)):
            turns, sums = zoo.GAN().step(pair, batch, context), 0.0
            for optimizer in (of_d, of_g):
                _, loss = next(turns)
                pair.zero_grad()
                loss.backward()
                optimizer.step()
                sums += loss.item()
            expected.append(sums)
        assert losses(run) == pytest.approx(expected, rel=1e-12)
        assert_same(pair.state_dict(), weights(run.trainer))

    @pytest.mark.parametrize(
        "precision", [("precision=bf16",), ("precision=amp", "precision.dtype=float16", "precision.init_scale=1024")]
    )
    def test_trains_in_mixed_precision(self, tmp_path, precision):
        half, full = (
            train(tmp_path / name, config(*GAN, "trainer.max_steps=4", *how))
            for name, how in (("half", precision), ("full", ()))
        )
        assert losses(half) == pytest.approx(losses(full), rel=0.02)
        assert losses(half) != losses(full)

    def test_is_clipped_turn_by_turn(self, tmp_path):
        run = train(tmp_path, config(*GAN, *SHORT, "trainer.clip_norm=0.01"))
        assert all(float(row["grad_norm"]) > 0.01 for row in rows(run.folder.steps))


@pytest.mark.parametrize("name", ["gan", "distillation", "byol"])
def test_accumulation_gives_the_same_weights(tmp_path, name):
    one, two = (
        train(tmp_path / count, config(*TASKS[name], *SHORT, f"trainer.grad_accumulation={count}")) for count in "12"
    )
    for key, weight in weights(one.trainer).items():
        torch.testing.assert_close(weights(two.trainer)[key], weight, rtol=0, atol=1e-12)


def test_a_gathered_loss_is_a_mean_over_micro_batches(tmp_path):
    plain = ("trainer.max_steps=1", "trainer.grad_accumulation=2", "optimizer.momentum=0", "optimizer.weight_decay=0")
    settings = (*CONTRASTIVE, *SHORT[1:], *plain)
    run = train(tmp_path / "run", config(*settings))
    torch.manual_seed(1)
    model = zoo.Projection().double()
    with opened(tmp_path / "batches", config(*settings)) as trainer:
        for batch in next(trainer.updates(trainer.train.epoch(0))):
            context = StepContext(trainer.update, batch, 0, training=True, of=2)
            (next(zoo.Contrastive().step(model, batch.inputs, context)) / 2).backward()
    for name, weight in weights(run.trainer).items():
        before = model.get_parameter(name)
        torch.testing.assert_close(weight, (before - 0.05 * before.grad).detach(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["gan", "byol"])
def test_a_run_in_two_parts_is_the_same_to_the_bit(tmp_path, name):
    settings = config(*TASKS[name], "checkpoint.every=1")
    whole = train(tmp_path / "whole", settings)
    train(tmp_path / "parts", {**settings, "trainer": {**settings["trainer"], "stop_after": 3}})
    parts = train(tmp_path / "parts", settings)
    assert_same(weights(whole.trainer), weights(parts.trainer))
    assert losses(whole) == losses(parts)


class TestATeacher:
    def test_follows_after_each_step(self, tmp_path):
        run = train(tmp_path / "run", config(*BYOL, *SHORT, "optimizer.momentum=0", "optimizer.weight_decay=0"))
        torch.manual_seed(1)
        twins = zoo.Twins().double()
        for (features, _), context in updates(tmp_path / "batches", (*BYOL, *SHORT)):
            one, other = features + 0.1 * context.randn(4), features + 0.1 * context.randn(4)
            target = normalize(twins.target(other), dim=1).detach()
            twins.zero_grad()
            mse_loss(normalize(twins.predictor(twins.online(one)), dim=1), target).backward()
            with torch.no_grad():
                for weight in (*twins.online.parameters(), *twins.predictor.parameters()):
                    weight -= 0.05 * weight.grad
                for mean, weight in zip(twins.target.parameters(), twins.online.parameters(), strict=True):
                    mean.lerp_(weight, 1 - 0.9)
        for name, weight in weights(run.trainer).items():
            torch.testing.assert_close(weight, twins.state_dict()[name], rtol=0, atol=1e-12)

    def test_is_averaged_in_fp32_if_weights_are_in_half_precision(self, tmp_path):
        settings = config(*BYOL, "precision=amp", "precision.level=O2", "precision.dtype=bfloat16")
        run = train(tmp_path / "whole", settings)
        update = run.trainer.update
        target = update.model.target[0].weight
        assert target.dtype is torch.bfloat16
        assert torch.equal(target, update.precision.full(target).bfloat16())
        assert not torch.equal(target.float(), update.precision.full(target))
        settings["checkpoint"]["every"] = 1
        train(tmp_path / "parts", {**settings, "trainer": {**settings["trainer"], "stop_after": 3}})
        parts = train(tmp_path / "parts", settings)
        assert_same(update.own_weights(), parts.trainer.update.own_weights())

    def test_stays_in_evaluation_mode_and_is_not_trained(self, tmp_path):
        run = train(tmp_path, config(*TASKS["distillation"], *SHORT))
        run.trainer.update.enter_training()
        teacher = run.trainer.update.model.teacher
        assert not any(module.training for module in teacher.modules())
        torch.manual_seed(1)
        assert_same(zoo.Taught().double().teacher.state_dict(), teacher.state_dict())
        assert not any(name.startswith("teacher") for name in run.trainer.update.names)


def test_noise_depends_on_the_sample_and_the_draw_alone(tmp_path):
    with opened(tmp_path, config(*GAN)) as trainer:
        (batch,) = next(trainer.updates(trainer.train.epoch(0)))
        one, other = (StepContext(trainer.update, batch, step, training=True) for step in (0, 7))
        first, second = one.randn(3, 100), one.randn(3, 100)
        assert torch.equal(first, other.randn(3, 100))
        batch.ids = batch.ids[::-1].copy()
        assert torch.equal(first.flip(0), StepContext(trainer.update, batch, 0, training=True).randn(3, 100))
    assert first.shape == (8, 3, 100)
    for drawn in (first, second):
        assert abs(float(drawn.mean())) < 0.1
        assert abs(float(drawn.std()) - 1) < 0.1
    assert abs(float((first * second).mean())) < 0.1
    assert math.isclose(float(one.rand(1000).mean()), 0.5, abs_tol=0.02)


class OneLess(zoo.GAN):
    def step(self, model, batch, context):
        yield "discriminator", model.discriminator(batch[0])


class Unnamed(zoo.GAN):
    def step(self, model, batch, context):
        yield model.discriminator(batch[0]).mean()


class Misnamed(zoo.GAN):
    def step(self, model, batch, context):
        yield "critic", model.discriminator(batch[0]).mean()


class Silent(zoo.GAN):
    def step(self, model, batch, context):
        if context.step < 0:
            yield "generator", model.discriminator(batch[0]).mean()


class Returning(zoo.GAN):
    def step(self, model, batch, context):
        return model.discriminator(batch[0]).mean()


class Detached(zoo.GAN):
    def step(self, model, batch, context):
        yield "generator", model.discriminator(batch[0]).mean().detach()


class Unfrozen(zoo.Distillation):
    def step(self, model, batch, context):
        model.teacher.requires_grad_(True)
        yield model.teacher(batch[0]).mean() + model.student(batch[0]).mean()


class Following(zoo.BYOL):
    teachers = ()


class Holding(zoo.Distillation):
    def __init__(self):
        super().__init__()
        self.other = copy.deepcopy(zoo.network(4, 3))


INCOMPLETE = ("data.drop_last=false", "data.batch_size=30", "trainer.grad_accumulation=3")


def mistaken(name: str, like: tuple[str, ...]) -> tuple[str, ...]:
    return (*like, f"task._target_={__name__}.{name}")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (mistaken("OneLess", GAN), r"step yields \(8, 1\) float32 as a loss, where a single number is needed"),
        (
            mistaken("Unnamed", GAN),
            "without an optimizer's name. Write yield name, loss with one of generator",
        ),
        (mistaken("Misnamed", GAN), "yields a loss for the optimizer 'critic'. Write yield name"),
        (mistaken("Silent", GAN), "has yielded no loss, so no optimizer would step"),
        (mistaken("Returning", GAN), "returns Tensor and yields no loss"),
        (mistaken("Detached", GAN), "that depends on no trained parameter"),
        (mistaken("Unfrozen", TASKS["distillation"]), r"teacher\.0\.weight, which is frozen, gets a gradient"),
        (mistaken("Following", BYOL), r"target\.0\.weight is trained as well. Add teachers = \('target',\)"),
        (mistaken("Holding", TASKS["distillation"]), r"its other\.0\.weight requires gradients, but an optimizer only"),
        ((*GAN, "+optimizer.parts.generator.match=discriminator"), "is in the optimizer .* too"),
        ((*GAN, "~optimizer.parts.discriminator"), r"no optimizer has discriminator\.0\.weight, "),
        (
            (*GAN, "parameters.freeze=[generator]"),
            "match=generator: all of its parameters are frozen",
        ),
        ((*GAN, "optimizer.parts.generator.lr=-1"), r"optimizer\.parts\.generator\.lr=-1 is not allowed"),
        ((*GAN, "parallel=zero1", "launcher=inline"), "parallel=zero1 wraps or divides a single optimizer"),
        ((*CONTRASTIVE, "trainer.sam_rho=0.05"), "sam_rho=0.05 repeats passes, and this task has a step of its own"),
        ((*CONTRASTIVE, *INCOMPLETE), "gather needs batches of the same size"),
    ],
)
def test_mistakes_are_told(tmp_path, settings, message):
    with pytest.raises(ConfigurationError, match=message):
        train(tmp_path, config(*settings))


@pytest.mark.parametrize("name", ["dp", "tensor", "pipeline", "local_sgd"])
def test_before_any_rank_starts_a_strategy_that_cannot_is_refused(name):
    error = refusal(typed(*CONTRASTIVE, f"parallel={name}", *(["launcher.nproc_per_node=2"] * (name != "dp"))))
    assert f"parallel={name} orders or watches the passes itself, and this task has a step" in str(error)


def test_a_strategy_that_cannot_is_refused(tmp_path):
    run = config(*CONTRASTIVE, "parallel=dp", "launcher=inline")
    with pytest.raises(ConfigurationError, match="parallel=dp orders or watches the passes itself"):
        attempt(tmp_path, run)


def test_each_part_may_have_a_schedule(tmp_path):
    own = "+scheduler@optimizer.parts.generator.scheduler=step"
    every = ("optimizer.parts.generator.scheduler.every_epochs=1", "optimizer.parts.generator.scheduler.gamma=0.1")
    run = train(tmp_path, config(*of("GAN", "Pair", *GAN[len(of("GAN", "Pair")) :]), own, *every, "scheduler=constant"))
    of_parts = {name: part.param_groups[0]["lr"] for name, part in run.trainer.update.optimizer.parts.items()}
    assert of_parts == {"generator": pytest.approx(0.001), "discriminator": 0.02}
    assert ZOO in run.run.task.target
