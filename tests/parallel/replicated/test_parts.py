"""What exactness rests on, part by part: shares drawn late, sums of shares, rows that were missed, refusals."""

import pytest
import torch

from manyheads.runner.config.complete import unavailable
from manyheads.runner.logger.csv.keeping import Keeping
from manyheads.runner.logger.csv.rank import Recorder
from manyheads.runner.loop.micro_steps import MicroSteps
from manyheads.runner.run.errors import ConfigurationError
from tests.in_process import config, small, train

SMALL = ("precision=fp64", "data.batch_size=26", "data.train_samples=208", "trainer.grad_accumulation=2")


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    return train(tmp_path_factory.mktemp("parts") / "run", small(*SMALL, "trainer.max_steps=2"))


def test_shares_drawn_late_are_the_global_batch(session):
    loader = session.trainer.train
    whole = [index for batch in loader.drawn([], 3, share=0, of=1) for index in batch.ids]
    parts = [loader.drawn([], 3, share=share, of=3) for share in range(3)]
    assert sorted(index for part in parts for batch in part for index in batch.ids) == sorted(whole)
    assert sum(batch.count for part in parts for batch in part) == 26
    again = loader.drawn(parts[2], 3, share=2, of=3)
    assert again is parts[2]
    assert loader.drawn(parts[2], 3, share=1, of=3) is not parts[2]
    loader.drawn([], 3, share=0, of=1)


def test_what_shares_come_to_adds_up_to_the_batch(session):
    update, loader = session.trainer.update, session.trainer.train
    steps = MicroSteps(update, [])

    def row(share: int, of: int) -> torch.Tensor:
        batches = loader.drawn([], 5, share=share, of=of)
        return steps.flattened([steps(batch, last=batch is batches[-1]) for batch in batches])

    torch.testing.assert_close(row(0, 3) + row(1, 3) + row(2, 3), row(0, 1), rtol=1e-12, atol=1e-12)
    passed = steps.unflattened(row(0, 1))
    assert passed.samples == 26
    statistics = update.scores.add_up([passed.observed, passed.observed])
    torch.testing.assert_close(update.scores.flatten(statistics), 2 * row(0, 1)[3:])


def test_rows_that_were_missed_are_taken_from_another():
    class Written(Recorder):
        def __init__(self):
            self.steps = []

        def step(self, row):
            self.steps.append(row["step"])

    other, written = Keeping(Recorder()), Written()
    for step in (1, 2, 3, 4):
        other.step({"step": step})
    Keeping(written).catch_up(other.kept(), after=2)
    assert written.steps == [3, 4]


def test_it_is_started_only_by_who_says_so():
    assert "trusted_network" in (unavailable("parallel", "replicated") or "") or unavailable("launcher", "torchft")
    with pytest.raises(ConfigurationError, match="no authentication|not installed"):
        config("parallel=replicated")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("launcher=spawn", "launcher=spawn stops all ranks when one dies"),
        ("trainer.sam_rho=0.05", "trainer.sam_rho"),
        ("checkpoint.format=sharded", "checkpoint.format=sharded"),
    ],
)
def test_what_it_does_not_go_with_is_refused(override, message):
    pytest.importorskip("torchft")
    with pytest.raises(ConfigurationError, match=message):
        config("parallel=replicated", "parallel.trusted_network=true", override)


def test_its_launcher_is_for_it_alone():
    pytest.importorskip("torchft")
    with pytest.raises(ConfigurationError, match="parallel=ddp can't handle"):
        config("parallel=ddp", "launcher=torchft")
