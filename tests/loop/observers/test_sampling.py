"""Callbacks that call the model while it trains: the run's weights don't change, under any strategy."""

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from manyheads.runner.callbacks.callback import Callback, RunContext
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.loop.observers.callbacks import sampling
from manyheads.runner.run.json_types import Numbers
from manyheads.runner.run.run_folder import RunFolder
from tests.in_process import small, train, weights
from tests.parallel.together import train_together

CALLED: list[tuple[str, Any]] = []


class Looking(Callback):
    """Calls the model on random images after updates, evaluations and epochs, and says what it saw."""

    every_rank = True

    def on_start(self, run: RunContext) -> None:
        self.run = run

    def look(self, when: str) -> None:
        with self.run.sampling() as model:
            outputs = model(torch.randn(2, 3, 8, 8, dtype=next(self.run.model.parameters()).dtype))
            assert not outputs.requires_grad
            assert not self.run.model.training
            CALLED.append((when, (outputs, np.random.random())))
        torch.save(outputs.float(), self.run.folder / f"{when}-{self.run.rank}.pt")

    def on_update(self, step: int) -> None:
        self.look("update")
        assert self.run.model.training

    def on_evaluation(self, split: str, samples: Any) -> None:
        self.look("evaluation")

    def on_epoch(self, row: Numbers) -> None:
        self.look("epoch")


class Alone(Looking):
    """On rank 0 only."""

    every_rank = False


MINE = f"+callbacks.mine._target_={__name__}.Looking"


@pytest.mark.parametrize("options", [(), ("trainer.ema_decay=0.5",)])
def test_the_run_is_the_same_with_and_without_it(tmp_path, options):
    plain = train(tmp_path / "plain", small(*options, "data.train_samples=40"))
    CALLED.clear()
    looking = train(tmp_path / "looking", small(*options, "data.train_samples=40", MINE))
    one, other = weights(plain.trainer), weights(looking.trainer)
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert len({number for _, (_, number) in CALLED}) == 1  # the generators start from the same seed each time
    last = {when: outputs for when, (outputs, _) in CALLED}
    assert torch.equal(last["update"], last["evaluation"]) == (not options)  # the average is what is evaluated
    assert torch.equal(last["update"], last["epoch"])


@pytest.mark.processes
def test_all_strategies_call_the_model_of_one_process(tmp_path):
    """On two ranks, with the same weights as without the callback; where each has a part, all ranks get the outputs."""
    common = ("precision=fp64", "trainer.epochs=1", "data.train_samples=24", "data.val_samples=9")
    strategies = {"ddp": "Alone", "fsdp": "Looking", "pipeline": "Looking", "zero1": "Looking"}
    cases: dict[str, Callable[[], tuple[str, ...]]] = {}
    for name, callback in strategies.items():
        mine = f"+callbacks.mine._target_={__name__}.{callback}"
        cases[name] = partial(tuple, [f"parallel={name}", *common, mine])
        cases[f"{name}-without"] = partial(tuple, [f"parallel={name}", *common])
    (tmp_path / "two").mkdir()
    train_together(tmp_path / "two", 2, cases)
    train(tmp_path / "one", small(*common, MINE))
    expected = torch.load(tmp_path / "one/epoch-0.pt")
    for name in strategies:
        with_it, without = (RunFolder(tmp_path / "two" / case).read_result() for case in (name, f"{name}-without"))
        assert with_it["weights_sha256"] == without["weights_sha256"]
        for path in (tmp_path / "two" / name).glob("epoch-*.pt"):
            torch.testing.assert_close(torch.load(path), expected, rtol=1e-6, atol=1e-6)
    assert len([*(tmp_path / "two/pipeline").glob("epoch-*.pt")]) == 2


def test_a_part_of_the_model_is_not_called_by_one_rank_alone():
    update = SimpleNamespace(parallel=SimpleNamespace(evaluates_together=True, world_size=2))
    refused = pytest.raises(ConfigurationError, match="Alone calls the model on rank 0 alone.*every_rank = True")
    with refused, sampling(update, name="Alone", every_rank=False):
        pass
