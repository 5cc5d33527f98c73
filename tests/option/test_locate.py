"""Classes of a user's own are called with the keys of their section, whatever these are called."""

import inspect

import pytest
import torch
from torch import nn

from manyheads.runner.callbacks.callback import Callback
from manyheads.runner.data.rank.build_data import build_data
from manyheads.runner.data.rank.custom import Custom, check_custom
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.metrics.metric import Metric, build_metrics
from manyheads.runner.model.rank.build_model import build_model
from manyheads.runner.optimizer.rank.build_optimizer import build_optimizer
from manyheads.runner.option import locate
from manyheads.runner.option.locate import instantiate_named
from manyheads.runner.option.option import Option
from manyheads.runner.scheduler.rank.build_schedule import build_schedule
from manyheads.runner.scheduler.rank.schedules import Schedule
from manyheads.runner.task.rank.build_task import build_loss, build_task
from manyheads.runner.task.rank.task import Task
from tests.in_process import typed

HERE = __name__
CALLED = (*vars(locate).values(), Custom.__init__, Option.instantiate, build_data, build_model, build_metrics)
OWN = {"self", "split", "root", "num_classes", "name"}  # Python's, and keys with a meaning of their own
NAMES = sorted(
    {name for each in CALLED if inspect.isfunction(each) for name in inspect.signature(each).parameters} - OWN
)
GIVEN = dict.fromkeys(NAMES, 7)
OVERRIDES = [f"{name}=7" for name in NAMES]


class Recorded:
    """Notes what it was called with."""

    def __init__(self, **given):
        super().__init__()
        self.given = given


class Samples(Recorded):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return index


class Net(Recorded, nn.Module):
    pass


class OwnTask(Recorded, Task):
    def __init__(self, **given):
        Recorded.__init__(self, **given)


class OwnLoss(Recorded, nn.Module):
    pass


class OwnOptimizer(torch.optim.SGD):
    def __init__(self, params, lr, momentum=0, weight_decay=0, **given):
        super().__init__(params, lr)
        self.given = given


class OwnSchedule(Schedule):
    def __init__(self, optimizer, /, **given):
        self.given = given


class OwnMetric(Metric):
    def __init__(self, **given):
        self.given = given


class OwnCallback(Recorded, Callback):
    pass


def section(group: str, kind: type) -> list[str]:
    return [f"{group}=custom", f"{group}._target_={HERE}.{kind.__name__}", *(f"+{group}.{each}" for each in OVERRIDES)]


def test_names_of_our_own_parameters_are_among_them():
    assert {"group", "target", "kind", "options", "given", "build", "splits", "key"} <= {*NAMES}


def data():
    option = typed(*section("data", Samples)).data
    check_custom(option)
    return build_data(option).split(train=True)


def metric():
    return build_metrics({"own": {"_target_": f"{HERE}.OwnMetric", **GIVEN}}, OwnTask(), 2)[0]


def callback():
    return instantiate_named("callbacks", {"own": {"_target_": f"{HERE}.OwnCallback", **GIVEN}}, Callback)["own"]


def schedule():
    updates = {"updates_per_epoch": 1, "total_updates": 2}
    return build_schedule(typed(*section("scheduler", OwnSchedule)).scheduler, None, **updates)


def optimizer():
    return build_optimizer(typed(*section("optimizer", OwnOptimizer)).optimizer, nn.Linear(2, 2), batch_size=1)


BUILT = {
    "data": data,
    "model": lambda: (
        build_model(
            typed(*section("model", Net)).model,
            Custom(Samples, ("train",), root=None, num_classes=2),
        ).model
    ),
    "task": lambda: build_task(typed(*section("task", OwnTask)).task, Samples(), loss={}, label_smoothing=0),
    "loss": lambda: build_loss({"_target_": f"{HERE}.OwnLoss", **GIVEN}, 0),
    "optimizer": optimizer,
    "scheduler": schedule,
    "metrics": metric,
    "callbacks": callback,
}


@pytest.mark.parametrize("group", BUILT)
def test_an_argument_may_have_any_name(group):
    assert BUILT[group]().given.items() >= GIVEN.items()


def test_what_the_run_itself_passes_is_no_key():
    option = typed("data=custom", f"data._target_={HERE}.Samples", "+data.split=train").data
    for build in (check_custom, build_data):
        with pytest.raises(
            ConfigurationError, match=r"data\.split=train: the run itself passes split\. Remove the key"
        ):
            build(option)
    with pytest.raises(ConfigurationError, match=r"scheduler\.total_updates=3: the run itself passes total_updates"):
        build_schedule(
            typed("scheduler=custom", f"scheduler._target_={HERE}.OwnSchedule", "+scheduler.total_updates=3").scheduler,
            None,
            total_updates=2,
        )
