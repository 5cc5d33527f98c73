"""``list``: which runs there are, how they stand, and how quickly that is known."""

import os
import time

import pytest

from manyheads.runner.commands.list import list_runs
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.records.run_summary import summaries
from manyheads.runner.run.ledger import Entry, Ledger
from manyheads.runner.run.run_folder import RunFolder
from tests.commands.run_folders import write_run
from tests.conftest import held


@pytest.fixture
def outputs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path / "outputs"


@pytest.fixture
def three(outputs):
    write_run(outputs / "day" / "a", "seed=1", acc=80.0, started=10, name="first", tags=["baseline", "small"])
    write_run(outputs / "day" / "b", "+model.width=2", acc=95.0, started=30, model={"name": "resnet18", "width": 2})
    write_run(outputs / "day" / "c", status="failed", started=20, optimizer={"name": "adam", "lr": 1e-4})
    return outputs


def listed(*words, **options):
    """The names of the folders, in the order in which they are listed."""
    return [os.path.basename(run.folder) for run in list_runs(words, **options).runs]


def test_a_line_for_each_run_the_newest_first(three, capsys):
    list_runs([]).show()
    title, *lines = capsys.readouterr().out.splitlines()
    assert title.split() == ["run", "name", "status", "metric", "time", "set"]
    assert [line.split()[0] for line in lines] == ["outputs/day/b", "outputs/day/c", "outputs/day/a"]
    assert lines[2].split() == ["outputs/day/a", "first", "completed", "val_acc1", "80", "1:05", "min", "seed=1"]
    assert "model.width=2" in lines[0]


def test_an_evaluation_is_told_from_a_training(outputs, capsys):
    write_run(outputs / "a", "seed=1")
    write_run(outputs / "b")
    evaluation = {"of": str(outputs / "a"), "weights": "best", "overrides": ["data.root=photos", "hydra.run.dir=b"]}
    folder = RunFolder(outputs / "b")
    folder.write_json(folder.result, {**folder.read_result(), "evaluation": evaluation})
    list_runs([]).show()
    _, *lines = capsys.readouterr().out.splitlines()
    (line,) = (line for line in lines if line.startswith("outputs/b"))
    assert line.endswith("evaluates outputs/a data.root=photos")


def test_what_all_runs_share_is_said_once(outputs, capsys):
    for lr in ("0.1", "0.2"):
        write_run(outputs / lr, "data=digits", "trainer.epochs=2", f"optimizer.lr={lr}")
    list_runs([]).show()
    title, *lines, shared = capsys.readouterr().out.splitlines()
    assert title.split()[-1] == "set"
    assert sorted(line.split()[-1] for line in lines) == ["optimizer.lr=0.1", "optimizer.lr=0.2"]
    assert not any("data=digits" in line for line in lines)
    assert shared == "all: data=digits trainer.epochs=2"


def test_the_runs_of_a_judgement_are_listed_where_it_is_named(three):
    judged = three / "judgements" / "12ab"
    write_run(judged / "runs" / "0000-facts")
    (judged / "judgement.jsonl").touch()
    assert listed() == ["b", "c", "a"]
    assert listed("outputs/judgements") == []
    assert listed("outputs/judgements/12ab") == ["0000-facts"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["status=failed"], ["c"]),
        (["name=first"], ["a"]),
        (["tags=baseline"], ["a"]),
        (["tags=[baseline,small]"], ["a"]),
        (["tags=base"], []),
        (["model=resnet18"], ["b"]),
        (["model.name=resnet18"], ["b"]),
        (["model.width=2"], ["b"]),
        (["optimizer.lr=0.0001"], ["c"]),
        (["optimizer.lr=1e-4"], ["c"]),
        (["optimizer=sgd", "status=completed"], ["b", "a"]),
        (["name=null"], ["b", "c"]),
    ],
)
def test_filters(three, words, expected):
    assert listed(*words) == expected


@pytest.mark.parametrize(
    ("sort", "first"),
    [("val_acc1", "b"), ("val_loss", "b"), ("optimizer.lr", "c"), ("folder", "a"), ("model.width", "b")],
)
def test_sorted_by_a_metric_the_best_first_or_by_a_column_or_key(three, sort, first):
    found = listed(sort=sort)
    assert (found[0], sorted(found)) == (first, ["a", "b", "c"])


@pytest.mark.parametrize(
    ("words", "options", "message"),
    [
        (["status=done"], {}, "status=done is not allowed. Allowed: completed, "),
        (["optimiser.lr=1"], {}, "optimiser.lr=1: none of these runs has such a key"),
        ([], {"sort": "val_acc"}, "--sort val_acc: none of these runs has that. Allowed: folder, .*val_acc1"),
        (["elsewhere"], {}, "elsewhere is not a folder"),
    ],
)
def test_what_there_is_not_is_refused(three, words, options, message):
    with pytest.raises(ConfigurationError, match=message):
        list_runs(words, **options)


def test_a_run_without_result_runs_only_while_its_process_lives(outputs):
    folder = write_run(outputs / "a", status=None)
    folder.logs.mkdir()
    folder.heartbeat.write_bytes(bytes(32))  # as SIGKILL leaves it
    with held(folder) as holder:
        assert [run.status for run in summaries(outputs)] == ["running"]
        holder.kill()
        holder.wait()
    assert [run.status for run in summaries(outputs)] == ["interrupted"]


def test_jobs_of_sweeps_stand_as_their_ledger_says(outputs):
    sweep = outputs / "sweeps" / "s"
    Ledger(sweep).create({}, Entry(0, "0", []), Entry(1, "1", [], state="skipped"), Entry(2, "2", []))
    write_run(sweep / "0")
    write_run(sweep / "1", status=None)
    (sweep / "1" / "run.yaml").unlink()
    write_run(sweep / "2", status=None).provenance.unlink()
    assert [(run.status, run.sweep.name) for run in summaries(outputs)] == [
        ("completed", "s"),
        ("skipped", "s"),
        ("pending", "s"),
    ]


def test_foreign_files_are_data(outputs, capsys):
    """Damaged, huge, of other kinds, or full of control characters: a line, and nothing more."""
    write_run(outputs / "a", "name=\x1b[2J", name="x\x1b]0;owned\x07\ny")
    (write_run(outputs / "b").result).write_text("[" * 10_000)
    (write_run(outputs / "c").config).write_text("a: &a [1]\nb: [*a, *a]\nseed: !!python/name:os.system x\n")
    os.symlink(outputs / "a", outputs / "link")
    os.symlink(outputs, outputs / "a" / "up")
    list_runs([]).show()
    out = capsys.readouterr().out
    assert len(out.splitlines()) == 4
    assert all(each.isprintable() for each in out.replace("\n", ""))


def test_nothing_is_said_in_a_sentence(outputs, capsys):
    with pytest.raises(ConfigurationError, match="there is no folder outputs here"):
        list_runs([]).show()
    outputs.mkdir()
    list_runs([]).show()
    assert capsys.readouterr().out == "no run below outputs\n"


def test_a_thousand_runs_are_listed_at_the_speed_of_reading_their_files(outputs, capsys):
    """Some ten times a plain read of the same bytes; by YAML's parser alone it would be far more."""
    count = 200  # a list's time grows with the number, of which this is enough to tell
    for number in range(count):
        write_run(outputs / f"{number:03}", f"seed={number}", acc=number / 2, seed=number)

    def plain() -> float:
        started = time.process_time()
        for path in outputs.glob("*"):
            for name in ("run.yaml", "result.json", ".hydra/overrides.yaml"):
                (path / name).read_bytes()
        return time.process_time() - started

    def listing() -> float:
        started = time.process_time()
        list_runs(["optimizer.lr=0.1"], sort="val_acc1").show()
        return time.process_time() - started

    allowed = 25 * min(plain() for _ in range(3))
    assert min(listing() for _ in range(3)) < allowed
    assert capsys.readouterr().out.count("\n") == 3 * (count + 1)


def test_values_of_two_definitions_are_not_ranked(tmp_path):
    folders = [write_run(tmp_path / f"{acc}", acc=acc) for acc in (95.0, 90.0, 80.0)]
    result = folders[2].read_result()
    result["scores"]["metrics"]["acc1"]["version"] = 2
    folders[2].write_json(folders[2].result, result)
    found = list_runs([str(tmp_path)], sort="val_acc1")
    assert [run.value for run in found.runs] == [80.0, 95.0, 90.0]
    assert [note.partition(":")[0] for note in found.notes] == ["val_acc1 has several definitions"]
