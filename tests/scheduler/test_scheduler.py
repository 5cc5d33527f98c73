"""Learning rates by the update's number, against torch's own schedulers."""

import pytest
import torch
from torch import nn
from torch.optim import SGD, lr_scheduler

from manyheads.runner.config.lookup import options
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.scheduler.rank.build_schedule import build_schedule
from manyheads.runner.scheduler.rank.schedules import Schedule
from tests.in_process import completed_for_here as complete
from tests.in_process import config, rows, small, train, typed

PER_EPOCH, EPOCHS = 7, 90
TOTAL = PER_EPOCH * EPOCHS
TORCH = "torch.optim.lr_scheduler"


def optimizer(*rates: float) -> SGD:
    return SGD([{"params": nn.Linear(1, 1).parameters(), "lr": rate} for rate in rates or (0.1,)])


def schedule(name: str, *overrides: str, over: SGD | None = None) -> Schedule:
    if name == "custom" and not any("_target_" in override for override in overrides):
        overrides = (*overrides, f"scheduler._target_={TORCH}.ExponentialLR", "+scheduler.gamma=0.99")
    section = typed(f"scheduler={name}", *overrides).scheduler
    return build_schedule(section, over or optimizer(), updates_per_epoch=PER_EPOCH, total_updates=TOTAL)


def rates(schedule: Schedule, updates=range(TOTAL)) -> list[float]:
    result = []
    for update in updates:
        schedule.set(update)
        result.append(schedule.lr)
    return result


def of(total: int) -> dict[str, int]:
    return {"updates_per_epoch": PER_EPOCH, "total_updates": total}


def of_torch(make) -> list[float]:
    stepped = optimizer()
    scheduler, result = make(stepped), []
    for _ in range(TOTAL):
        result.append(stepped.param_groups[0]["lr"])
        stepped.step()
        scheduler.step()
    return result


NO_WARMUP = "scheduler.warmup_epochs=0"


def test_step_is_torch_s_step_lr():
    expected = of_torch(lambda o: lr_scheduler.StepLR(o, step_size=30 * PER_EPOCH, gamma=0.1))
    assert rates(schedule("step", NO_WARMUP)) == pytest.approx(expected, rel=1e-12)


def test_cosine_is_torch_s_cosine():
    expected = of_torch(lambda o: lr_scheduler.CosineAnnealingLR(o, T_max=TOTAL, eta_min=0.01))
    ours = rates(schedule("cosine", NO_WARMUP, "scheduler.final_factor=0.1"))
    assert ours == pytest.approx(expected, rel=1e-9)


def test_multistep_is_torch_s_multi_step_lr():
    expected = of_torch(lambda o: lr_scheduler.MultiStepLR(o, [e * PER_EPOCH for e in (10, 20)], gamma=0.2))
    ours = rates(schedule("multistep", NO_WARMUP, "scheduler.milestones=[10,20]", "scheduler.gamma=0.2"))
    assert ours == pytest.approx(expected, rel=1e-12)


def test_polynomial_is_torch_s_polynomial_lr():
    expected = of_torch(lambda o: lr_scheduler.PolynomialLR(o, total_iters=TOTAL, power=0.9))
    assert rates(schedule("polynomial", NO_WARMUP, "scheduler.power=0.9")) == pytest.approx(expected, rel=1e-9)


def test_one_cycle_is_torch_s_one_cycle_lr():
    expected = of_torch(lambda o: lr_scheduler.OneCycleLR(o, 0.1, total_steps=TOTAL + 1, cycle_momentum=False))
    ours = rates(build_schedule(typed("scheduler=one_cycle", NO_WARMUP).scheduler, optimizer(), **of(TOTAL + 1)))
    assert ours == pytest.approx(expected, rel=1e-9)


def test_wsd_is_constant_and_falls_in_its_last_part():
    found = rates(schedule("wsd", NO_WARMUP, "scheduler.decay_share=0.1", "scheduler.decay=linear"))
    stable = TOTAL - round(0.1 * TOTAL)
    assert set(found[: stable + 1]) == {0.1}
    assert found[stable:] == pytest.approx([0.1 * (TOTAL - u) / (TOTAL - stable) for u in range(stable, TOTAL)])
    root = rates(schedule("wsd", NO_WARMUP, "scheduler.decay_share=0.1"))
    assert root[stable + 16] == pytest.approx(0.1 * (1 - (16 / 63) ** 0.5))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("CosineAnnealingWarmRestarts", {"T_0": 50}),
        ("CyclicLR", {"base_lr": 0.01, "max_lr": 0.2, "step_size_up": 20}),
        ("OneCycleLR", {"max_lr": 0.2, "total_steps": TOTAL + 1}),
        ("ExponentialLR", {"gamma": 0.9}),
    ],
)
def test_any_of_torch_s_with_the_momentum_that_it_sets(name, options):
    stepped = SGD(nn.Linear(1, 1).parameters(), lr=0.1, momentum=0.9)
    theirs, expected = getattr(lr_scheduler, name)(stepped, **options), []
    for _ in range(TOTAL):
        expected.append([stepped.param_groups[0][key] for key in ("lr", "momentum")])
        stepped.step()
        theirs.step()
    over = SGD(nn.Linear(1, 1).parameters(), lr=0.1, momentum=0.9)
    given = [f"+scheduler.{key}={value}" for key, value in options.items()]
    ours, found = schedule("custom", NO_WARMUP, f"scheduler._target_={TORCH}.{name}", *given, over=over), []
    for update in range(TOTAL):
        ours.set(update)
        found.append([over.param_groups[0][key] for key in ("lr", "momentum")])
    assert found == expected


def test_one_of_torch_s_that_counts_epochs():
    overrides = (f"scheduler._target_={TORCH}.StepLR", "+scheduler.step_size=2", "scheduler.interval=epoch", NO_WARMUP)
    epochs = rates(schedule("custom", *overrides))
    assert epochs[: 2 * PER_EPOCH] == [0.1] * 2 * PER_EPOCH
    assert epochs[2 * PER_EPOCH] == pytest.approx(0.01)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ([f"scheduler._target_={TORCH}.ReduceLROnPlateau"], "Set scheduler=plateau"),
        ([f"scheduler._target_={TORCH}.StepLR"], "rejects its arguments.*step_size"),
        (["scheduler._target_=torch.nn.Identity"], "is not a schedule"),
    ],
)
def test_what_is_no_schedule_is_refused(overrides, message):
    with pytest.raises(ConfigurationError, match=message):
        schedule("custom", *overrides)


def test_warm_up_in_steps_is_that_in_epochs():
    in_epochs = rates(schedule("cosine", "scheduler.warmup_epochs=2"))
    assert rates(schedule("cosine", NO_WARMUP, f"scheduler.warmup_steps={2 * PER_EPOCH}")) == in_epochs
    with pytest.raises(ConfigurationError, match="Set only one of them"):
        schedule("cosine", "scheduler.warmup_epochs=2", "scheduler.warmup_steps=14")


@pytest.mark.parametrize("direction", ["max", "min"])
def test_plateau_is_torch_s(direction):
    scores = [5.0, 4.0, 4.0, 4.1, 3.9999, 3.0, 3.2, float("nan"), 3.1, 3.0, 2.9, 2.9, 2.9, 2.9, 2.9, 2.9, 2.9]
    signed = [10 - score if direction == "max" else score for score in scores]
    stepped = optimizer()
    theirs = lr_scheduler.ReduceLROnPlateau(stepped, direction, factor=0.5, patience=2, min_lr=0.02)
    ours = schedule("plateau", NO_WARMUP, "scheduler.gamma=0.5", "scheduler.patience=2", "scheduler.min_factor=0.2")
    for update, score in enumerate(signed):
        theirs.step(score)
        ours.evaluated(score, direction)
        ours.set(update)
        assert ours.lr == pytest.approx(stepped.param_groups[0]["lr"]), update
    assert ours.lr == pytest.approx(0.02)
    again = schedule("plateau", NO_WARMUP, "scheduler.gamma=0.5", "scheduler.patience=2", "scheduler.min_factor=0.2")
    again.load_state_dict({"step": 9, **ours.state_dict()})
    again.set(9)
    assert again.lr == ours.lr


def test_a_run_whose_metric_stays_where_it_is_slows_down_also_when_it_is_resumed(tmp_path):
    settings = ("scheduler=plateau", "scheduler.patience=0", "scheduler.gamma=0.5", "optimizer.lr=1e-9", NO_WARMUP)
    settings = (*settings, "trainer.epochs=4", "trainer.log_every=1")
    whole = train(tmp_path / "whole", small(*settings))
    train(tmp_path / "parts", small(*settings, "trainer.stop_after=50"))
    RunFolder(tmp_path / "parts").result.unlink()
    again = train(tmp_path / "parts", small(*settings))
    found = [[float(row["lr"]) for row in rows(run.folder.steps)] for run in (whole, again)]
    assert found[0] == found[1]
    assert found[0][0] == 1e-9
    assert found[0][-1] == pytest.approx(0.25e-9)


def test_plateau_without_evaluations_is_refused():
    with pytest.raises(ConfigurationError, match=r"never measured with trainer\.evaluate_every=0"):
        complete(config("scheduler=plateau", "trainer.evaluate_every=0"))


def test_constant_is_constant():
    assert set(rates(schedule("constant", NO_WARMUP))) == {0.1}


@pytest.mark.parametrize("name", [name for name in options("scheduler") if name not in ("custom", "one_cycle")])
@pytest.mark.parametrize("epochs", [1, 2.5])
def test_warm_up_rises_linearly_to_the_schedule(name, epochs):
    warmed = rates(schedule(name, f"scheduler.warmup_epochs={epochs}"))
    updates = round(epochs * PER_EPOCH)
    assert warmed[:updates] == pytest.approx([0.1 * (i + 1) / updates for i in range(updates)])
    assert max(warmed) == warmed[updates - 1] == pytest.approx(0.1)
    if name == "cosine":
        assert warmed[updates] == pytest.approx(0.1)
        assert 0 < warmed[-1] < 1e-5


@pytest.mark.parametrize("name", options("scheduler"))
def test_a_rate_depends_on_the_update_s_number_alone(name):
    forward = rates(schedule(name, "scheduler.warmup_epochs=3"))
    backward = rates(schedule(name, "scheduler.warmup_epochs=3"), range(TOTAL - 1, -1, -9))
    assert backward == forward[::-9]


def test_every_parameter_group_keeps_its_own_rate():
    over = optimizer(0.1, 0.02)
    schedule("step", NO_WARMUP, over=over).set(31 * PER_EPOCH)
    assert [group["lr"] for group in over.param_groups] == pytest.approx([0.01, 0.002])


def test_it_goes_on_after_the_optimizer_has_loaded_a_state():
    """load_state_dict gives an optimizer new parameter groups."""
    over = optimizer()
    used = schedule("cosine", NO_WARMUP, over=over)
    used.set(10)
    over.load_state_dict(over.state_dict())
    used.set(TOTAL // 2)
    assert over.param_groups[0]["lr"] == used.lr == pytest.approx(0.05)


def test_a_run_of_nothing_but_warm_up():
    section = typed("scheduler=cosine", "scheduler.warmup_epochs=5").scheduler
    short = build_schedule(section, optimizer(), updates_per_epoch=2, total_updates=4)
    assert rates(short, range(4)) == pytest.approx([0.01, 0.02, 0.03, 0.04])
    assert torch.isfinite(torch.tensor(rates(short, range(20)))).all()
