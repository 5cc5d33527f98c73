"""The index of runs says what reading all runs would say, whatever others do to the folders and to the index."""

import errno
import json
import os
import shutil

import pytest

from manyheads.runner import errors
from manyheads.runner.records import find
from manyheads.runner.records.run_summary import summaries
from manyheads.runner.records.tried import entry, index
from manyheads.runner.records.tried.index import PLACE, indexed
from tests.commands.run_folders import write_run
from tests.conftest import held


@pytest.fixture
def outputs(tmp_path, monkeypatch):
    monkeypatch.setattr(index, "SETTLED", -60.0)  # these folders are new, and count as old
    for number in range(6):
        write_run(tmp_path / "outputs" / "day" / str(number), seed=number, acc=90.0 + number)
    return tmp_path / "outputs"


@pytest.fixture
def read(monkeypatch):
    """The names of the runs that were read, rather than taken from the index."""
    names = []
    read_row = entry.read_row

    def noted(path, *others):
        names.append(path.name)
        return read_row(path, *others)

    monkeypatch.setattr(entry, "read_row", noted)
    return names


def known(outputs) -> dict[str, tuple]:
    return {str(path): (row.status, row.value, row.started) for path, row in indexed(outputs).runs(lambda _: True)}


def truth(outputs) -> dict[str, tuple]:
    return {str(run.folder.path): (run.status, run.measured, run.started) for run in summaries(outputs)}


def test_what_is_unchanged_is_not_read_again(outputs, read):
    assert known(outputs) == truth(outputs)
    assert sorted(read) == list("012345")
    read.clear()
    assert known(outputs) == truth(outputs)
    assert read == []


def remove(outputs):
    shutil.rmtree(outputs / "day" / "1")


def move(outputs):
    (outputs / "day" / "1").rename(outputs / "one")


def move_a_day(outputs):
    (outputs / "day").rename(outputs / "night")


def swap(outputs):
    for source, target in ((("day", "1"), ("day", "x")), (("day", "2"), ("day", "1")), (("day", "x"), ("day", "2"))):
        outputs.joinpath(*source).rename(outputs.joinpath(*target))


def add(outputs):
    write_run(outputs / "day" / "new")


def end_otherwise(outputs):
    run = outputs / "day" / "1"
    (run / "result.new").write_text(json.dumps({"status": "failed"}))
    (run / "result.new").replace(run / "result.json")


def begin_again(outputs):
    (outputs / "day" / "1" / "result.json").unlink()


def become_a_judgement(outputs):
    (outputs / "day" / "judgement.jsonl").touch()


@pytest.mark.parametrize(
    "change", [remove, move, move_a_day, swap, add, end_otherwise, begin_again, become_a_judgement]
)
def test_what_others_change_is_seen(change, outputs):
    before = known(outputs)
    change(outputs)
    assert known(outputs) == truth(outputs) != before
    assert known(outputs) == truth(outputs)


def test_a_run_that_has_not_ended_is_looked_at_each_time(outputs):
    run = write_run(outputs / "day" / "now", status=None)
    assert known(outputs)[str(run.path)][0] == "interrupted"
    with held(run):
        assert known(outputs)[str(run.path)][0] == "running"
    assert known(outputs)[str(run.path)][0] == "interrupted"


def test_a_folder_that_has_just_changed_is_read_again(outputs, read, monkeypatch):
    monkeypatch.setattr(index, "SETTLED", 60.0)
    known(outputs)
    known(outputs)
    assert sorted(read) == sorted(2 * "012345")


def emptied(path):
    path.write_text("")


def cut(path):
    path.write_bytes(path.read_bytes()[:-40])


def altered(path):
    path.write_text(path.read_text().replace("completed", "failed"))


def of_others(path):
    body = path.read_text().partition("\n")[2]
    body = body.replace("completed", "failed")
    path.write_text(f"{index.hashlib.sha256(body.encode()).hexdigest()}\n{body}")


def not_json(path):
    path.write_text(f"{index._code(b'nothing')}\nnothing")


def deleted(path):
    shutil.rmtree(path.parent)


@pytest.mark.parametrize("spoil", [emptied, cut, altered, of_others, not_json, deleted])
def test_an_index_that_is_damaged_or_deleted_is_built_again(spoil, outputs, read):
    known(outputs)
    spoil(outputs / PLACE / "index.json")
    read.clear()
    assert known(outputs) == truth(outputs)
    assert sorted(read) == list("012345")
    read.clear()
    assert known(outputs) == truth(outputs)
    assert read == []


@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC])
def test_a_disk_that_cannot_be_written_gives_a_sentence(number, outputs, monkeypatch, capsys):
    def refuse(path, content):
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(index, "write_whole", refuse)
    errors.warn.cache_clear()
    assert known(outputs) == truth(outputs)
    assert f"index.json can't be written: {os.strerror(number)}. The runs are read again" in capsys.readouterr().err


def test_a_folder_that_vanishes_meanwhile_has_no_runs(outputs, monkeypatch):
    known(outputs)
    listing = find.listing

    def removing(folder):
        content = listing(folder)
        shutil.rmtree(outputs / "day", ignore_errors=True)
        return content

    monkeypatch.setattr(index, "listing", removing)
    write_run(outputs / "another")  # so that outputs/ is listed, and day/ removed then
    assert known(outputs).keys() == {str(outputs / "another")}
