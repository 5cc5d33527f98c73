"""``judge --log``: the formats that it reads, what it says of them, and mistakes."""

import json
import sys

import pytest

from manyheads.runner.answers.judge.log.audit_log import audit_log
from manyheads.runner.errors import ConfigurationError, ExitCode
from tests.conftest import execute

VALUES = [1.0, 1.2, 0.9, 1.1, None, 0.95, 0.8]
KEPT = [True, False, True, False, False, False, True]


def tsv() -> str:
    """As autoresearch writes it: a crash has the value 0."""
    rows = [
        f"{number:07x}\t{value or 0:.6f}\t44.0\t{'crash' if value is None else 'keep' if is_kept else 'discard'}\tidea"
        for number, (value, is_kept) in enumerate(zip(VALUES, KEPT, strict=True))
    ]
    return "\n".join(["commit\tval_bpb\tmemory_gb\tstatus\tdescription", *rows]) + "\n"


def jsonl() -> str:
    """As pi-autoresearch writes it, which also logs hooks."""
    header = {"type": "config", "name": "n", "metricName": "val_bpb", "metricUnit": "", "bestDirection": "lower"}
    rows = [
        {"run": number, "metric": value or 0, "metrics": {"size": number}, "description": "idea", "segment": 0}
        | {"status": "crash" if value is None else "keep" if is_kept else "discard"}
        for number, (value, is_kept) in enumerate(zip(VALUES, KEPT, strict=True))
    ]
    return "\n".join(json.dumps(row) for row in [header, *rows, {"type": "hook", "stage": "after"}]) + "\n"


def table() -> str:
    rows = [
        f"{'' if value is None else value},{'crash' if value is None else str(is_kept).lower()}"
        for value, is_kept in zip(VALUES, KEPT, strict=True)
    ]
    return "\n".join(["val_bpb,kept", *rows]) + "\n"


@pytest.mark.parametrize(("write", "on"), [(tsv, None), (jsonl, None), (table, "val_bpb"), (tsv, "val_bpb")])
def test_the_formats_that_people_have_say_the_same(tmp_path, write, on, capsys):
    path = tmp_path / "log"
    path.write_text(write())
    answer = audit_log(path, on, lower=None)
    assert (answer.on, answer.lower_is_better) == ("val_bpb", True)
    assert (answer.changes, answer.failed, answer.unreadable) == (5, 1, [])
    assert (answer.kept, answer.improved, answer.low, answer.high) == (2, 2, 0, 3)
    assert answer.expected == pytest.approx(1 / 2 + 1 / 3 + 1 / 4 + 1 / 5 + 1 / 6)
    assert [gain.value for gain in answer.gains] == [0.8]
    assert answer.exit_code is ExitCode.NO
    answer.show()
    said = capsys.readouterr().out
    assert "5 changes by val_bpb, lower is better. 1 trial without a value left out." in said
    assert "Noise alone keeps 1.4 of 5 (90 %: 0 to 3). Changes that do harm lower that number." in said
    assert "No more than noise alone would keep." in said


def test_a_gain_that_lasts_is_more_than_noise(tmp_path, capsys):
    path = tmp_path / "log.csv"
    rows = [(1 + number / 100, number == 0) for number in range(10)] + [(0.5, True)]
    rows += [(0.6 + number / 100, False) for number in range(6)]
    path.write_text("loss,kept\n" + "".join(f"{value},{is_kept}\n" for value, is_kept in rows))
    answer = audit_log(path, "loss", lower=None)
    assert answer.exit_code is ExitCode.DONE
    assert [gain.lines for gain in answer.unexplained] == [[12]]
    answer.show()
    assert "6 of the 6 values after it better than before (p = 0.00012)" in capsys.readouterr().out


def test_a_new_baseline_begins_a_new_count(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text(2 * jsonl())
    answer = audit_log(path, None, lower=None)
    assert (answer.changes, answer.kept, answer.improved) == (10, 4, 4)


def test_lines_that_cannot_be_read_are_named(tmp_path, capsys):
    path = tmp_path / "log.jsonl"
    path.write_text(jsonl() + '{"run": 8, "metric": "nan", "status": "keep"}\n{"run": 9, "met')
    answer = audit_log(path, None, lower=None)
    assert answer.unreadable == [10, 11]
    answer.show()
    assert "Lines 10, 11 cannot be read and are left out." in capsys.readouterr().out


def test_a_kept_change_that_is_not_the_best_so_far_is_told(tmp_path, capsys):
    path = tmp_path / "log.csv"
    path.write_text("acc,status\n1,keep\n3,keep\n2,keep\n")
    answer = audit_log(path, "acc", lower=False)
    assert (answer.kept, answer.improved) == (2, 1)
    answer.show()
    assert "Kept: 2. 1 of them was not the best so far." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "on", "sentence"),
    [
        (None, None, "cannot be read: No such file"),
        ("", None, "is empty"),
        ("val_bpb,note\n1,a\n", None, "lacks a column named status or kept or keep or decision; it has val_bpb, note."),
        ("commit,status,description\na,keep,b\n", None, "the log has no such column. Allowed: commit, status"),
        (
            "commit,loss,status\na,1,keep\n",
            "acc",
            "--on acc: the log has no such column. Allowed: commit, loss",
        ),
        ("commit,loss,status\na,-,keep\n", None, "has no trial with a value of loss"),
        ("commit,score,status\na,1,keep\nb,2,discard\n", None, "does not say which values of score are better"),
        ("commit,score,status\na,1,keep\nb,2,keep\nc,1,keep\n", None, "add --lower or --higher"),
    ],
)
def test_mistakes(tmp_path, content, on, sentence):
    path = tmp_path / "log"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigurationError) as raised:
        audit_log(path, on, lower=None)
    assert sentence in str(raised.value)


def test_on_the_command_line(tmp_path):
    (tmp_path / "results.tsv").write_text(tsv())
    command = (sys.executable, "-m", "manyheads.runner", "judge", "--log", "results.tsv", "--higher", "--json")
    done = execute(*command, cwd=tmp_path)
    assert done.code == 3, done.err
    answer = json.loads(done.out)["result"]
    assert (answer["lower_is_better"], answer["improved"]) == (False, 0)
    done = execute(*command, "model=mlp", cwd=tmp_path)
    assert (done.code, json.loads(done.out)["error"]["key"]) == (2, "--log")
