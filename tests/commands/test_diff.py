"""``diff``: what differs between two runs, and nothing else."""

import json
import shutil

import pytest

from manyheads.runner.commands.diff import difference
from manyheads.runner.run.run_folder import RunFolder
from tests.commands.run_folders import write_run


@pytest.fixture(autouse=True)
def _wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")


def test_a_run_differs_in_nothing_from_itself(finished_run, capsys):
    difference(str(finished_run.path), str(finished_run.path)).show()
    assert capsys.readouterr().out == "the same: config, code and machine, results\n"


def test_config_code_and_results(tmp_path, finished_run, capsys):
    other = RunFolder(shutil.copytree(finished_run.path, tmp_path / "other"))
    other.write_config(other.read_config() | {"seed": 77})
    provenance = json.loads(other.provenance.read_text())
    other.write_json(other.provenance, provenance | {"versions": provenance["versions"] | {"torch": "0.0"}})
    result = other.read_result()
    other.write_json(other.result, result | {"metrics": result["metrics"] | {"val_acc1": 12.5}})
    difference(str(finished_run.path), str(other.path)).show()
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["seed", "1", "77"] in lines
    assert [line[-1] for line in lines if line[:1] == ["torch"]] == ["0.0"]
    assert [line[-1] for line in lines if line[:1] == ["val_acc1"]] == ["12.5"]
    assert not any(line[:1] == ["val_loss"] for line in lines)


@pytest.mark.parametrize(
    "provenance",
    ["{", "[]", '{"data": {"files": "x"}, "packages": {"a": 1}, "commit": "abc"}', '{"own_code": {"a": null}}'],
)
def test_what_others_wrote_is_data(tmp_path, capsys, provenance):
    first, second = write_run(tmp_path / "a", notes="\x1b[2J"), write_run(tmp_path / "b", status=None)
    first.provenance.write_text(provenance)
    difference(str(first.path), str(second.path)).show()
    out = capsys.readouterr().out
    assert "notes" in out
    assert "\x1b" not in out


def test_values_of_two_definitions_are_not_comparable(tmp_path):
    folders = [write_run(tmp_path / name) for name in "ab"]
    result = folders[1].read_result()
    result["scores"]["metrics"]["acc1"]["version"] = 2
    folders[1].write_json(folders[1].result, result)
    row, *_ = [each for each in difference(*map(str, folders)).results if each.what.startswith("val_")]
    assert (row.what, row.first, row.second) == ("val_acc1 (not comparable)", "90, version 1", "90, version 2")
