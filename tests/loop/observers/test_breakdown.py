"""Where an epoch's time goes: by a clock that is put on by hand, then in real runs."""

import pytest
import torch
from torch import nn

from manyheads.runner.loop.meter import Sums, parts
from manyheads.runner.loop.observers import breakdown
from manyheads.runner.loop.observers.breakdown import Breakdown
from manyheads.runner.run.tables.columns import TRAINING
from tests.in_process import attempt, rows, small, train
from tests.loop.test_trainer import weights

CPU = torch.device("cpu")


class Slow(nn.Module):
    """Takes ``seconds`` for its forward pass, and before and after it in a wrapper twice as long."""

    def __init__(self, now: list[float], seconds: float, inner: nn.Module | None = None):
        super().__init__()
        self.now, self.seconds, self.inner = now, seconds, inner or nn.Linear(2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.now[0] += self.seconds
        y = self.inner(x)
        self.now[0] += self.seconds if isinstance(self.inner, Slow) else 0
        return y


def update(model: nn.Module, watched: Breakdown, now: list[float]) -> dict[str, float]:
    """One update whose exchange takes 5 s, the optimizer's step 7 s and the rest 11 s."""
    watched.begin()
    model(torch.zeros(3, 2)).sum().backward()
    now[0] += 5
    watched.mark("exchanged")
    now[0] += 7
    watched.mark("stepped")
    now[0] += 11
    watched.end()
    return watched.take()


def test_each_part_is_what_took_its_time(now):
    model = Slow(now, 3)
    watched = Breakdown(model, model, CPU, ranks=2, guards=[])
    expected = {"sampled_compute": 3, "sampled_communication": 5, "sampled_optimizer": 7, "sampled_logging": 11}
    assert update(model, watched, now) == expected
    assert watched.take() == dict.fromkeys(expected, 0)


def test_what_a_wrapper_does_around_the_forward_pass_is_communication(now):
    own = Slow(now, 3)
    wrapper = Slow(now, 2, own)
    found = update(wrapper, Breakdown(wrapper, own, CPU, ranks=2, guards=[]), now)
    assert (found["sampled_compute"], found["sampled_communication"]) == (3, 5 + 2 + 2)


@pytest.mark.parametrize("compiled", ["the wrapper", "the model in it"])
def test_a_compiled_model_is_left_alone(now, compiled):
    own = Slow(now, 3)
    wrapper = Slow(now, 2, own)
    each = wrapper if compiled == "the wrapper" else own
    each._compiled_call_impl = each._call_impl
    found = update(wrapper, Breakdown(wrapper, own, CPU, ranks=2, guards=[]), now)
    assert (found["sampled_compute"], found["sampled_communication"]) == (3 + 2 + 2, 5)


def test_an_update_without_gradients_has_no_communication(now):
    model = Slow(now, 3).requires_grad_(False)
    watched = Breakdown(model, model, CPU, ranks=2, guards=[])
    watched.begin()
    model(torch.zeros(3, 2))
    for name in ("exchanged", "stepped"):
        watched.mark(name)
    watched.end()
    assert watched.take()["sampled_communication"] == 0


def test_one_rank_has_nothing_to_exchange(now):
    model = Slow(now, 3)
    found = update(model, Breakdown(model, model, CPU, ranks=1, guards=[]), now)
    assert (found["sampled_compute"], found["sampled_communication"]) == (3 + 5, 0)


def test_hooks_are_gone_after_the_update(now):
    own = Slow(now, 3)
    wrapper = Slow(now, 2, own)
    update(wrapper, Breakdown(wrapper, own, CPU, ranks=2, guards=[]), now)
    assert not any((m._forward_hooks or m._forward_pre_hooks) for m in wrapper.modules())
    assert not any(p._post_accumulate_grad_hooks for p in wrapper.parameters())


@pytest.mark.parametrize("epochs", [{20: "-----x--------------"}, {3: "--x", 4: "--x-", 5: "x----"}, {1: "x"}])
def test_the_first_updates_of_a_process_are_measured_only_if_an_epoch_has_no_others(now, epochs):
    watched = Breakdown(nn.Linear(2, 1), nn.Linear(2, 1), CPU, ranks=1, guards=[])
    for updates, expected in epochs.items():
        watched.enter_epoch(updates)
        now[0] += 2 * breakdown.SETTLE_SECONDS
        found = ""
        for _ in range(updates):
            if is_due := watched.is_due(now[0]):
                watched.begin()
                watched.end()
            found += "x" if is_due else "-"
        assert found == expected


@pytest.mark.parametrize(("seconds", "expected"), [(0.01, 25), (0.125, 10), (1.0, 10)])
def test_an_update_is_measured_four_times_a_second_or_every_tenth(now, seconds, expected):
    watched = Breakdown(nn.Linear(2, 1), nn.Linear(2, 1), CPU, ranks=1, guards=[])
    watched.enter_epoch(60)
    measured = []
    for number in range(60):
        if is_due := watched.is_due(now[0]):
            measured.append(number)
            watched.begin()
        now[0] += seconds
        if is_due:
            watched.end()
    assert measured[1] - measured[0] == pytest.approx(expected, abs=1)


def test_parts_are_the_training_time_of_the_slowest_rank():
    sums = Sums(seconds=10, data_seconds=2, logging_seconds=1)
    sums.sampled_compute, sums.sampled_communication, sums.sampled_optimizer, sums.sampled_logging = 4, 2, 1, 0.0
    found = parts(sums, 20)
    assert found == pytest.approx({"data": 4, "compute": 8, "communication": 4, "optimizer": 2, "logging": 2})
    assert tuple(found) == TRAINING
    assert sum(found.values()) == pytest.approx(20)
    assert parts(Sums(seconds=5), 5)["compute"] == 5  # nothing was looked at
    assert parts(Sums(), 0) == dict.fromkeys(TRAINING, 0)


@pytest.mark.parametrize("accumulation", [1, 2])
def test_a_run_says_it_for_each_epoch_and_in_the_end(tmp_path, accumulation):
    run = train(tmp_path, small(f"trainer.grad_accumulation={accumulation}", "checkpoint.every=13"))
    epochs = [{name: float(value) for name, value in row.items()} for row in rows(run.folder.epochs)]
    for row in epochs:
        seconds = [row[f"{part}_seconds"] for part in TRAINING]
        assert all(value >= 0 for value in seconds)
        assert sum(seconds) == pytest.approx(row["train_seconds"])
        assert row["compute_seconds"] > 0
        assert row["optimizer_seconds"] > 0
    time = run.folder.read_result()["time"]
    for part in TRAINING:
        assert time[part] == pytest.approx(sum(row[f"{part}_seconds"] for row in epochs))
    assert time["evaluation"] == pytest.approx(sum(row["val_seconds"] for row in epochs))
    assert time["checkpoint"] > sum(row["checkpoint_seconds"] for row in epochs) > 0  # the last one follows its row


def test_a_resumed_run_goes_on_counting(tmp_path):
    first = train(tmp_path, small("trainer.stop_after=25"))
    before = first.folder.read_result()["time"]
    whole = train(tmp_path, small())
    assert whole.trainer.progress.step == 40
    after = whole.folder.read_result()["time"]
    assert all(after[part] > before[part] for part in ("compute", "evaluation"))


def test_looking_changes_nothing(tmp_path, monkeypatch):
    plain = train(tmp_path / "plain", small())
    monkeypatch.setattr(breakdown, "SAMPLE_SECONDS", 0.0)
    monkeypatch.setattr(breakdown, "OTHERS", 0)
    monkeypatch.setattr(breakdown, "SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(breakdown, "WARMUP_UPDATES", 0)
    run, updates = attempt(tmp_path / "watched", small()), []
    start = Breakdown.begin
    monkeypatch.setattr(Breakdown, "begin", lambda self: updates.append(1) or start(self))
    run.train(seed=1, state=None)
    assert len(updates) == 40
    for name, value in weights(plain.trainer).items():
        assert torch.equal(value, weights(run.trainer)[name]), name
