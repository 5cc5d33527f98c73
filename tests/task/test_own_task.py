"""A task of one's own: the gradient of the mean over the global batch, and all that follows from its metrics."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from manyheads.launchers.launch import launch, prepare
from manyheads.runner.data.keys import permutation
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.run_folder import RunFolder
from tests.conftest import ROOT, execute
from tests.in_process import rows, small, train
from tests.tail import tail
from tests.task.sentences import PADDING, Bigrams, Sentences

OWN = (
    *("task=custom", "task._target_=tests.task.sentences.NextWord", "data=custom", "precision=fp64"),
    *("data._target_=tests.task.sentences.Sentences", "model=custom", "model._target_=tests.task.sentences.Bigrams"),
    *("data.num_workers=0", "data.batch_size=8", "trainer.epochs=2", "trainer.log_every=1", "scheduler=constant"),
    "optimizer.weight_decay=0.0005",
)
MEAN = "task._target_=tests.task.sentences.Averaged"


def losses(folder: RunFolder) -> list[float]:
    return [float(row["loss"]) for row in rows(folder.steps)]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return train(tmp_path_factory.mktemp("own") / "alone", small(*OWN)).folder


def test_updates_are_those_of_the_mean_over_all_words_of_the_batch(alone):
    """By hand, in plain PyTorch."""
    torch.manual_seed(1)
    model, sentences = Bigrams().double(), Sentences(split="train")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=0.0005)
    expected = []
    for epoch in range(2):
        for chosen in permutation(40, seed=1, epoch=epoch).astype(np.int64).reshape(5, 8).tolist():
            batch = Sentences.collate_fn([sentences[index] for index in chosen])
            logits = model(words=batch["words"])["logits"].flatten(0, 1)
            loss = cross_entropy(logits, batch["labels"].flatten(), ignore_index=PADDING)
            expected.append(loss.item())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    assert losses(alone) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("accumulation", [1, 2, 4])
@pytest.mark.parametrize("task", [OWN[1], MEAN])
def test_micro_batches_of_unlike_counts_give_the_same_updates(alone, tmp_path, task, accumulation):
    run = train(tmp_path, small(*OWN, task, f"trainer.grad_accumulation={accumulation}"))
    assert losses(run.folder) == pytest.approx(losses(alone), rel=1e-9)


@pytest.mark.processes
@pytest.mark.parametrize(("strategy", "task"), [("ddp", OWN[1]), tail("horovod", MEAN)])
def test_ranks_of_unlike_counts_give_the_same_updates(alone, tmp_path, strategy, task):
    folder = RunFolder(tmp_path)
    ranks = (f"parallel={strategy}", "launcher.nproc_per_node=2", "trainer.grad_accumulation=2")
    folder.write_config(small(*OWN, task, *ranks))
    result, other = launch(prepare(folder)), alone.read_result()
    assert losses(folder) == pytest.approx(losses(alone), rel=1e-9)
    assert result["metrics"]["val_perplexity"] == pytest.approx(other["metrics"]["val_perplexity"], rel=1e-9)


def test_a_run_in_two_parts_is_the_same_to_the_bit(alone, tmp_path):
    config = small(*OWN, "checkpoint.every=1")
    train(tmp_path, {**config, "trainer": {**config["trainer"], "stop_after": 7}})
    whole = train(tmp_path, config)
    assert whole.folder.read_result()["weights_sha256"] == alone.read_result()["weights_sha256"]
    assert losses(whole.folder) == losses(alone)


def test_columns_the_best_epoch_and_the_objective_follow_from_its_metrics(alone):
    header = list(rows(alone.epochs)[0])
    assert [name for name in header if name.startswith(("train_", "val_"))] == [
        "train_seconds", "train_loss", "train_perplexity", "val_seconds", "val_loss", "val_perplexity", "val_samples",
    ]  # fmt: skip
    result = alone.read_result()
    values = [float(row["val_perplexity"]) for row in rows(alone.epochs)]
    assert result["best"] == {
        "epoch": 1 + values.index(min(values)),
        "val_loss": pytest.approx(np.log(min(values))),
        "val_perplexity": min(values),
    }
    assert result["objective"] == min(values)
    assert alone.best_checkpoint.exists()
    assert result["scores"]["metrics"] == {
        "perplexity": {"direction": "min", "label": "perplexity", "unit": "", "version": 1}
    }


@pytest.mark.tail
@pytest.mark.processes
def test_it_is_shown_compared_and_reproduced(alone, tmp_path):
    """As its owner would: a sweep, its comparison, parity, and a past run again."""
    own = (*OWN, "trainer.device=cpu", "launcher.threads_per_rank=1")
    command = (sys.executable, str(ROOT / "run.py"))
    sweep = execute(*command, "-m", *own, "parallel=single,ddp", "hydra.sweep.dir=sweep", cwd=tmp_path)
    assert sweep.code == 0, sweep.err
    header, *jobs = (tmp_path / "sweep" / "comparison.csv").read_text().splitlines()
    assert {"val_perplexity", "best_val_perplexity"} <= {*header.split(",")}
    assert len(jobs) == 2
    assert "Validation perplexity against seconds" in (tmp_path / "sweep" / "comparison.html").read_text()
    again = execute(
        sys.executable, "-m", "manyheads.runner", "reproduce", "sweep/0", "hydra.run.dir=again", cwd=tmp_path
    )
    assert again.code == 0, again.out + again.err
    assert "identical" in again.out
    assert json.loads((tmp_path / "again" / "result.json").read_text())["metrics"]["val_perplexity"] > 1
    steps = ("--steps", "2", "parallel=ddp", "launcher.nproc_per_node=2")
    parity = execute(sys.executable, "-m", "manyheads.runner", "parity", *own, *steps, cwd=tmp_path)
    assert parity.code == 0, parity.out + parity.err


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["checkpoint.monitor=val_acc1"],
            "monitor=val_acc1 is not measured. Allowed: auto, val_loss, val_per",
        ),
        (["task._target_=tests.task.sentences.Bigrams"], "is not a manyheads Task"),
        (["+task.width=3"], "rejects its arguments"),
    ],
)
def test_mistakes_are_told(tmp_path: Path, overrides, message):
    with pytest.raises(ConfigurationError, match=message):
        train(tmp_path, small(*OWN, *overrides))
