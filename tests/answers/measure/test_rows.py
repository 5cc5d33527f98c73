"""The ledger of measured runs."""

import json

import pytest

from manyheads.runner.answers.measure.rows import COMPLETED, FAILED, INTERRUPTED, STARTED, RunLedger, RunRow
from manyheads.runner.answers.measure.runs import config_digest
from manyheads.runner.errors import ConfigurationError


def row(number, state=STARTED):
    return RunRow(number, "round", 0, 0, "base", 1, f"runs/{number}", 1.0, state=state)


@pytest.fixture
def rows(tmp_path):
    found = RunLedger(tmp_path)
    found.create({"asked": 1})
    for number in range(3):
        found.write(row(number))
        found.write(row(number, COMPLETED))
    return found


def test_the_last_line_of_a_run_counts(rows):
    rows.write(row(3))
    assert [each.state for each in rows.rows()] == [COMPLETED] * 3 + [INTERRUPTED]
    rows.write(row(3, FAILED))
    assert rows.rows()[3].state == FAILED
    assert rows.question() == {"asked": 1}


def test_what_a_killed_writer_left_is_cut_off(rows):
    with open(rows.path, "a") as file:
        file.write('{"content": {"num')
    rows.write(row(3))
    assert len(rows.rows()) == 4


@pytest.mark.parametrize("change", ["edited", "removed", "swapped"])
def test_a_broken_chain_is_not_continued(rows, change):
    lines = rows.path.read_text().splitlines()
    if change == "edited":
        lines[2] = lines[2].replace('"seed": 1', '"seed": 2')
    elif change == "removed":
        del lines[2]
    else:
        lines[2], lines[3] = lines[3], lines[2]
    rows.path.write_text("\n".join(lines) + "\n")
    with pytest.raises(ConfigurationError, match="line 3 was changed"):
        rows.rows()


def test_rows_are_read_only_if_each_was_written_with_the_users_key(rows, tmp_path, monkeypatch):
    assert rows.rows()
    with monkeypatch.context() as other:
        other.setenv("XDG_STATE_HOME", str(tmp_path / "other"))
        with pytest.raises(ConfigurationError, match="runs that you did not record"):
            rows.lines()
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    with monkeypatch.context() as other:
        other.setenv("XDG_STATE_HOME", str(tmp_path / "other"))
        RunLedger(theirs).create({"asked": 1})
    with pytest.raises(ConfigurationError, match="runs that you did not record"):
        RunLedger(theirs).write(row(0))


def test_rows_without_a_key_are_known_to_the_process_that_wrote_them(rows, monkeypatch):
    monkeypatch.setattr("manyheads.runner.run.seal.key_file", lambda: None)
    rows.path.unlink()
    rows.create({"asked": 1})
    rows.write(row(0))
    assert len(rows.rows()) == 1
    monkeypatch.setattr("manyheads.runner.run.seal._key_in_memory", lambda: b"another process")
    with pytest.raises(ConfigurationError, match="runs that you did not record"):
        rows.question()


@pytest.mark.parametrize("wrong", [{"state": "done"}, {"seed": "1"}, {"findings": []}, {"arm": 1}, {"more": 1}])
def test_a_row_with_other_types_is_refused(wrong):
    with pytest.raises(ConfigurationError, match="cannot be read"):
        RunRow.of({**json.loads(json.dumps(vars(row(0)))), **wrong})


def test_the_digest_of_a_config_is_the_one_that_was_recorded_before():
    assert config_digest({"seed": 1, "b": 2, "a": {"x": None}}) == "3842720a8b3c812e"
