"""Callbacks, metrics and loggers of a user's own: entries of the config's dicts, with nested objects."""

import json
from itertools import chain
from pathlib import Path

import pytest

from manyheads.launchers.launch import launch, prepare
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.run_folder import RunFolder
from tests.in_process import rows, small, train

HOOKS = "tests.callbacks.hooks"
DIARY = f"+callbacks.diary._target_={HOOKS}.Diary"
QUICK = ("trainer.max_steps=4", "trainer.epochs=1", "data.train_samples=32", "data.val_samples=11")


def diary(path: Path, rank: int = 0) -> list[list]:
    return [json.loads(line) for line in (path / f"diary-{rank}.jsonl").read_text().splitlines()]


def test_a_callback_is_told_every_turn(tmp_path):
    nested = "+callbacks.diary.title={_target_:collections.Counter,red:1}"
    run = train(tmp_path, small(*QUICK, DIARY, nested))
    told = diary(tmp_path)
    assert told[0] == ["start", 0, "SmallCNN", "Counter"]
    assert told[1:5] == [["update", step] for step in (1, 2, 3, 4)]
    evaluated = [each[1:] for each in told if each[0] == "evaluation"]
    assert [ids for *_, ids in evaluated] == [[*range(8)], [8, 9, 10]]
    assert [shape for shape, *_ in evaluated] == [[8, 3], [3, 3]]
    assert told[-3] == ["epoch", 1, float(rows(run.folder.epochs)[0]["val_loss"])]
    assert told[-2:] == [["checkpoint", "last.pt"], ["end", "completed"]]


@pytest.mark.processes
def test_on_every_rank_it_sees_all_samples_and_a_metric_counts_each_once(tmp_path):
    metric = (f"+metrics.worst._target_={HOOKS}.Worst", "+metrics.worst.classes=3")
    alone = train(tmp_path / "alone", small(*QUICK, *metric, "precision=fp64")).folder
    folder = RunFolder(tmp_path / "ranks")
    folder.path.mkdir()
    ranks = ("parallel=ddp", "launcher.nproc_per_node=2", "precision=fp64")
    folder.write_config(small(*QUICK, *metric, *ranks, DIARY, "+callbacks.diary.every_rank=true"))
    launch(prepare(folder))
    result = folder.read_result()
    ids = [each[3] for rank in (0, 1) for each in diary(folder.path, rank) if each[0] == "evaluation"]
    assert sorted(chain.from_iterable(ids)) == [*range(11)]
    assert result["metrics"]["val_worst"] == alone.read_result()["metrics"]["val_worst"]
    assert result["metrics"]["train_worst"] == alone.read_result()["metrics"]["train_worst"]
    assert result["scores"]["metrics"]["worst"] == {
        "direction": "max",
        "label": "worst class",
        "unit": "%",
        "version": 1,
    }


@pytest.mark.processes
def test_predictions_are_collected_once_for_each_sample_on_one_rank_and_on_three(tmp_path):
    more = (f"+callbacks.predictions._target_={HOOKS}.Predictions", "precision=fp64", "data.batch_size=12")
    train(tmp_path / "1", small(*QUICK, *more))
    folder = RunFolder(tmp_path / "3")
    folder.path.mkdir()
    folder.write_config(small(*QUICK, *more, "parallel=ddp", "launcher.nproc_per_node=3"))
    launch(prepare(folder))
    found = {}
    for ranks in (1, 3):
        parts = [json.loads((tmp_path / f"{ranks}" / f"predictions-{rank}.json").read_text()) for rank in range(ranks)]
        assert all(parts), "a rank has evaluated nothing"
        found[ranks] = sorted(chain.from_iterable(parts))
        assert [index for index, *_ in found[ranks]] == [*range(11)]
    for (_, outputs, target), (_, others, its) in zip(found[1], found[3], strict=True):
        assert target == its
        assert outputs == pytest.approx(others, rel=1e-9)


def test_it_changes_no_number(tmp_path):
    plain, watched = (train(tmp_path / name, small(*QUICK, *more)) for name, more in (("a", ()), ("b", (DIARY,))))
    digests = [run.folder.read_result()["weights_sha256"] for run in (plain, watched)]
    assert digests[0] == digests[1]


def test_what_a_callback_raises_ends_the_run(tmp_path):
    with pytest.raises(ArithmeticError, match="enough"):
        train(tmp_path, small(*QUICK, f"+callbacks.failing._target_={HOOKS}.Failing"))


def test_loggers_are_added_and_removed_by_name(tmp_path, capsys):
    more = (
        f"+logger.lines._target_={HOOKS}.Lines",
        f"+logger.away._target_={HOOKS}.Unreachable",
        "trainer.log_every=2",
    )
    train(tmp_path / "more", small(*QUICK, *more))
    assert (tmp_path / "more" / "lines.txt").read_text() == "step 2\nstep 4\ncompleted\n"
    assert list((tmp_path / "more" / "tensorboard").iterdir())
    assert "warning: logger.away failed and is not called any more" in capsys.readouterr().out
    for name, fewer in (("deleted", "~logger.tensorboard"), ("csv", "logger=csv")):
        train(tmp_path / name, small(*QUICK, fewer))
        assert not (tmp_path / name / "tensorboard").exists()
        assert len(rows(tmp_path / name / "epochs.csv")) == 1


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["+callbacks.mine.step=3"], r"callbacks\.mine=.* names no class. Set \+callbacks\.mine\._target_="),
        (["+logger.tracker=7"], r"logger\.tracker=7 names no class"),
        (["+metrics={a-b:{_target_:x.Y}}"], "a-b is not a valid name"),
        (
            ["+callbacks.mine._target_=collections.Counter"],
            r"is not a Callback\. Derive the class from manyheads",
        ),
        ([f"+metrics.acc1._target_={HOOKS}.Worst", "+metrics.acc1.classes=3"], "two metrics have the same name"),
        ([f"+metrics.x._target_={HOOKS}.Worst"], r"metrics\.x\._target_=.*rejects its arguments: .*classes"),
        ([f"+metrics.x._target_={HOOKS}.Absent"], "has no Absent"),
    ],
)
def test_mistakes_are_told(tmp_path, overrides, message):
    with pytest.raises(ConfigurationError, match=message):
        train(tmp_path, small(*QUICK, *overrides))
