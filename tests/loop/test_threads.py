"""How many CPU threads the ranks choose: the rule, the measurement, and what keeps the choice."""

import json
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.loop import threads
from manyheads.runner.loop.threads import WORTH, decided, fewest, most_worth, work_per_operation
from manyheads.runner.run.run_folder import RunFolder
from tests.in_process import config


@pytest.fixture(autouse=True)
def as_before():
    count = torch.get_num_threads()
    yield
    torch.set_num_threads(count)


def loader(*shape, samples, **more):
    """A loader of micro-batches of this many samples, whose inputs have this shape."""
    sampler = SimpleNamespace(epoch=lambda number: iter([SimpleNamespace(indices=range(samples))]))
    return SimpleNamespace(first=lambda count: torch.zeros(count, *shape), samples=100, sampler=sampler, **more)


@pytest.mark.parametrize(
    ("model", "shape", "samples", "work"),
    [
        (nn.Linear(40, 10), (40,), 100, 2 * 100 * 40 * 10),
        (nn.Sequential(nn.Linear(40, 100), nn.ReLU(), nn.Linear(100, 10)), (40,), 10, 10 * (40 * 100 + 100 * 10)),
        (nn.Conv2d(1, 4, 3, padding=1), (1, 8, 8), 5, 8 * 2 * 5 * 4 * 64 * 9),
        (nn.Sequential(nn.Dropout(), nn.ReLU()), (8,), 5, None),
    ],
)
def test_work_is_counted_without_values(model, shape, samples, work):
    assert work_per_operation(model, loader(*shape, samples=samples)) == work


class Looking(nn.Module):
    """Needs the values of its inputs."""

    def forward(self, inputs):
        return inputs if inputs.sum().item() > 0 else -inputs


def test_a_model_that_needs_values_keeps_all_threads():
    assert work_per_operation(Looking(), loader(8, samples=4)) is None
    assert most_worth(None, cores=6, loaders=0) == 6


def test_a_recurrent_network_counts_each_of_its_products():
    class Last(nn.LSTM):
        def forward(self, inputs):
            return super().forward(inputs)[0][:, -1]

    work = work_per_operation(Last(8, 16, batch_first=True), loader(20, 8, samples=2))
    assert 0 < (work or 0) < 2 * 2 * 20 * 64 * 24 / 20


def test_counting_changes_neither_the_model_nor_random_numbers():
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout())
    before, state = {k: v.clone() for k, v in model.state_dict().items()}, torch.get_rng_state()
    assert work_per_operation(model, loader(4, samples=2)) == 2 * 2 * 4 * 4
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("work", "cores", "loaders", "threads"),
    [
        (0.1, 8, 0, 1),
        (1.9, 8, 0, 1),
        (2.0, 8, 0, 2),
        (5.5, 8, 0, 5),
        (100, 8, 0, 8),
        (100, 8, 4, 7),  # a core for the first loader process
        (100, 2, 2, 2),  # which would be half of the threads
        (1.9, 2, 2, 1),
    ],
)
def test_each_thread_has_enough_work(work, cores, loaders, threads):
    assert most_worth(work * WORTH, cores=cores, loaders=loaders) == threads


@pytest.mark.parametrize(
    ("seconds", "threads"), [({1: 1.0, 2: 0.95}, 1), ({1: 1.0, 2: 0.8}, 2), ({1: 1.0, 4: 8.0}, 1), ({1: 1.1, 2: 1}, 1)]
)
def test_the_fewest_threads_that_are_about_as_fast(seconds, threads):
    assert fewest(seconds) == threads


def decide(folder, by="auto"):
    """What is decided for a small model, of which two threads are allowed."""
    train = loader(40, samples=10, processes=0, example=lambda: None)
    task = SimpleNamespace(has_step=False)
    prepared = SimpleNamespace(model=nn.Linear(40, 10), loaders=SimpleNamespace(train=train), task=task)
    parallel = SimpleNamespace(records=True, backward_steps=False)
    return decided(parallel, prepared, RunFolder(folder), by=by, most=2)


def test_the_rule_records_what_it_decides(tmp_path):
    torch.set_num_threads(2)
    assert decide(tmp_path) == []
    assert torch.get_num_threads() == 1
    recorded = json.loads((tmp_path / "threads.json").read_text())
    assert (recorded["threads"], recorded["most"], recorded["by"]) == (1, 2, "auto")


def test_a_later_session_keeps_the_choice(tmp_path, monkeypatch):
    monkeypatch.setattr(threads, "work_per_operation", lambda *_, **__: pytest.fail("it decides again"))
    (tmp_path / "threads.json").write_text('{"threads": 2}')
    torch.set_num_threads(1)
    assert decide(tmp_path, "measure") == []
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize(("took", "chosen"), [({1: 1.0, 2: 0.95}, 1), ({1: 1.0, 2: 0.5}, 2)])
def test_measuring_times_passes_in_turn(tmp_path, monkeypatch, took, chosen):
    (measuring,) = decide(tmp_path, "measure")
    assert not (tmp_path / "threads.json").exists()
    now, said = [0.0], []
    monkeypatch.setattr(threads.time, "perf_counter", lambda: now[0])

    def prime(example, *, warm_up):
        now[0] += took[torch.get_num_threads()]

    update = SimpleNamespace(parallel=SimpleNamespace(gather=lambda value: [value], records=True), prime=prime)
    measuring.attached(update, SimpleNamespace(display=SimpleNamespace(say=said.append))).start(None)
    assert torch.get_num_threads() == chosen == RunFolder(tmp_path).chosen_threads()
    assert said == [
        f"CPU threads per rank: {chosen}; passes took 1e+03 ms with 1 and {1000 * took[2]:g} ms with 2 (medians of 5)"
    ]


@pytest.mark.parametrize("content", ["", "[]", '{"threads": "many"}', '{"most": 2}'])
def test_a_record_that_cannot_be_read_counts_as_none(tmp_path, content):
    (tmp_path / "threads.json").write_text(content)
    assert (RunFolder(tmp_path).chosen_threads(), RunFolder(tmp_path).kept_threads()) == (None, [])


def test_a_repetition_has_as_many_threads(tmp_path):
    (tmp_path / "threads.json").write_text('{"threads": 3}')
    assert RunFolder(tmp_path).kept_threads() == ["launcher.threads_per_rank=3"]


@pytest.mark.parametrize("value", ["none", "auto:0", "measure:x", "0"])
def test_other_values_are_refused(value):
    with pytest.raises(ConfigurationError, match="auto or measure, or auto:4 for at most 4"):
        config(f"launcher.threads_per_rank={value}")
