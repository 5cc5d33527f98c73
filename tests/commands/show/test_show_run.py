"""``show``: one run on one page, and commands that can be pasted."""

import shlex

import pytest

from manyheads.runner.commands.show.show_run import commands, run_page
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.records.run_summary import summary
from tests.commands.run_folders import write_run


def test_of_a_real_run(finished_run, capsys):
    run_page(str(finished_run.path)).show()
    out = " ".join(capsys.readouterr().out.split())
    for part in ("status completed", "2 steps", "model.width=2", "command python", "commit", "val_acc1", "checkpoints"):
        assert part in out


def test_commands_can_be_pasted_whatever_the_folder_is_called(tmp_path):
    folder = write_run(tmp_path / 'it\'s a "run"; rm -rf $HOME')
    folder.checkpoints.mkdir()
    folder.best_checkpoint.touch()
    folder.last_checkpoint.touch()
    found = dict(commands(summary(folder)))
    assert {*found} == {"train longer", "evaluate it", "reproduce it"}
    assert shlex.split(found["reproduce it"]) == ["python", "-m", "runner", "reproduce", str(folder.path)]
    assert str(folder.path) in shlex.split(found["evaluate it"])


def test_what_was_interrupted_can_be_gone_on_with(tmp_path):
    folder = write_run(tmp_path / "run", status="interrupted")
    assert dict(commands(summary(folder))) == {"resume it": f"python -m runner resume {folder}"}


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="holds no run"):
        run_page(str(tmp_path))
    (tmp_path / "multirun.yaml").touch()
    with pytest.raises(ConfigurationError, match="is a sweep"):
        run_page(str(tmp_path))


def test_what_it_prints_is_printable(tmp_path, capsys):
    folder = write_run(tmp_path / "run", "name=\x1b[2J", notes="\x1b]0;owned\x07")
    folder.provenance.write_text('{"host": "\\u001b[2J", "command": "a\\u001b[2Jb", "commit": "abc\\u001b[2J"}')
    (folder.path / "\x1b[2J").touch()
    run_page(str(folder.path)).show()
    assert "\x1b[2J" not in capsys.readouterr().out


def test_a_run_that_was_predicted_says_how_well(tmp_path, capsys):
    folder = write_run(tmp_path / "run")
    known = {"seconds": 0.0126, "low": 0.011, "high": 0.014, "batch": 48, "network": "10gbe", "device": "cpu"}
    folder.write_json(folder.provenance, {"predicted": {**known, "is_alike": True}})
    folder.write_json(folder.result, {"status": "completed", "samples_per_second": 4000.0})
    page = run_page(str(folder.path))
    page.show()
    said = " ".join(capsys.readouterr().out.split())
    assert "predicted +5.0 %: 12.6 ms per update were predicted for cpu over 10gbe and 12 measured, within" in said
    assert page.predicted.error == pytest.approx(0.05)


def test_a_rank_for_which_others_waited_is_shown(tmp_path, capsys):
    folder = write_run(tmp_path / "run")
    slow = {"rank": 1, "intervals": 2, "of": 9, "seconds": 3.21, "part": "data", "cause": "its loader is slower"}
    folder.write_json(folder.result, {"status": "completed", "slow_ranks": [slow]})
    run_page(str(folder.path)).show()
    said = " ".join(capsys.readouterr().out.split())
    assert (
        "slow rank 1, at times (in 2 of 9 intervals, for 3.2 s), mostly waiting for data: its loader is slower" in said
    )
    folder.write_json(folder.result, {"status": "completed", "slow_ranks": [{"rank": "1"}]})  # damaged
    run_page(str(folder.path)).show()
    assert "slow" not in capsys.readouterr().out
