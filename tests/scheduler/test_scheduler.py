"""Learning rates by the update's number, against torch's own schedulers."""

import pytest
import torch
from torch import nn
from torch.optim import SGD, lr_scheduler

from manyheads.runner.config.lookup import options
from manyheads.runner.run.locate import instantiate
from manyheads.runner.scheduler.rank import Schedule
from tests.in_process import config

PER_EPOCH, EPOCHS = 7, 90
TOTAL = PER_EPOCH * EPOCHS


def optimizer(*rates: float) -> SGD:
    return SGD([{"params": nn.Linear(1, 1).parameters(), "lr": rate} for rate in rates or (0.1,)])


def schedule(name: str, *overrides: str, over: SGD | None = None) -> Schedule:
    section = config(f"scheduler={name}", *overrides)["scheduler"]
    return instantiate("scheduler", section, over or optimizer(), updates_per_epoch=PER_EPOCH, total_updates=TOTAL)


def rates(schedule: Schedule, updates=range(TOTAL)) -> list[float]:
    result = []
    for update in updates:
        schedule.set(update)
        result.append(schedule.lr)
    return result


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


def test_constant_is_constant():
    assert set(rates(schedule("constant", NO_WARMUP))) == {0.1}


@pytest.mark.parametrize("name", options("scheduler"))
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
    backward = rates(schedule(name, "scheduler.warmup_epochs=3"), range(TOTAL - 1, -1, -1))
    assert backward[::-1] == forward


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
    section = config("scheduler=cosine", "scheduler.warmup_epochs=5")["scheduler"]
    short = instantiate("scheduler", section, optimizer(), updates_per_epoch=2, total_updates=4)
    assert rates(short, range(4)) == pytest.approx([0.01, 0.02, 0.03, 0.04])
    assert torch.isfinite(torch.tensor(rates(short, range(20)))).all()
