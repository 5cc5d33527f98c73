"""``tried``: which runs had some settings, with failures and refusals; without torch and Hydra."""

import subprocess
import sys

import pytest

from manyheads.runner.commands.tried import tried
from manyheads.runner.errors import ConfigurationError, ExitCode, UnknownName
from manyheads.runner.run.json_types import ResultJson
from manyheads.runner.run.ledger import Entry, Ledger
from tests.commands.run_folders import write_run
from tests.conftest import ROOT


@pytest.fixture
def outputs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "outputs" / "a", started=10, name="first", tags=["baseline", "small"])
    write_run(tmp_path / "outputs" / "b", started=30, model={"name": "resnet18", "width": 2})
    failed = write_run(tmp_path / "outputs" / "c", started=20, optimizer={"name": "adam", "lr": 1e-4})
    result: ResultJson = {"status": "failed", "error": {"type": "E", "message": "the loss is nan\nat step 3"}}
    failed.write_json(failed.result, result)
    write_run(
        tmp_path / "outputs" / "d", status=None, model={"_target_": f"{tmp_path}/net.py:Net", "name": "Net"}, started=5
    )
    return tmp_path / "outputs"


def names(*words):
    return [run.folder.rpartition("/")[2] for run in tried(words).runs]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], ["b", "c", "a", "d"]),
        (["optimizer.lr=0.1"], ["b", "a", "d"]),
        (["optimizer.lr=1e-1", "model=small_cnn"], ["a"]),
        (["+model.width=2"], ["b"]),
        (["model.width=null"], ["c", "a", "d"]),
        (["name=null"], ["b", "c", "d"]),
        (["tags=baseline"], ["a"]),
        (["optimizer=adam", "model=resnet18"], []),
        (["model=net.py:Net"], ["d"]),
        (["optimizer.momentum=0.9"], []),  # which an option has, and none of the runs
        (["outputs/a", "seed=1"], ["a"]),
    ],
)
def test_settings_select_runs_that_had_them_typed_or_by_default(outputs, words, expected):
    assert names(*words) == expected


def test_a_failure_and_a_refusal_say_why(outputs, capsys):
    sweep = Ledger(outputs / "sweep")
    skipped = write_run(outputs / "sweep" / "0", status=None, seed=9)
    skipped.config.rename(skipped.composed)  # it was refused, so it was never frozen
    sweep.create({}, Entry(0, "0", ["seed=9"], state="skipped", reason="there is no GPU here"))
    [refused], [failed] = tried(["seed=9"]).runs, tried(["optimizer=adam"]).runs
    assert (refused.status, refused.reason) == ("skipped", "there is no GPU here")
    assert (failed.status, failed.reason) == ("failed", "the loss is nan\nat step 3")
    tried(["optimizer=adam"]).show()
    title, line = capsys.readouterr().out.splitlines()
    assert title.split() == ["run", "status", "why"]
    assert line.split(maxsplit=2) == ["outputs/c", "failed", "the loss is nan"]


def test_the_answer_is_no_where_nothing_was_tried(outputs, capsys):
    answer = tried(["seed=77"])
    answer.show()
    assert (answer.exit_code, answer.found) == (ExitCode.NO, 4)
    assert capsys.readouterr().out == "not tried: none of 4 runs below outputs\n"
    assert tried(["seed=1"]).exit_code == ExitCode.DONE


def test_before_the_first_run_nothing_was_tried(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert tried(["model=mlp"]).exit_code == ExitCode.NO
    assert not (tmp_path / "outputs").exists()


def test_a_mistyped_key_is_not_taken_for_one_that_was_not_tried(outputs):
    with pytest.raises(UnknownName, match="optimizer.lrr: no run and no option has such a key. Did you mean"):
        tried(["optimizer.lrr=0.1"])
    with pytest.raises(ConfigurationError, match="Leave out ~model"):
        tried(["~model=mlp"])


def test_neither_torch_nor_hydra_is_imported(outputs):
    code = (
        "import sys; from manyheads.runner.app import main; code = main(['tried', 'seed=1', '--json'])\n"
        "assert not {'torch', 'hydra', 'numpy', 'rich'} & {*sys.modules}; sys.exit(code)"
    )
    for _ in range(2):  # building the index, and with it
        subprocess.run(
            [sys.executable, "-c", code], check=True, cwd=outputs.parent, env={"PYTHONPATH": f"{ROOT}/.names"}
        )
