"""``clean``: what goes, what stays, and that nothing else is touched."""

import os
import shutil
import time

import pytest

from manyheads.runner.commands.clean import clean, remove
from manyheads.runner.commands.clean.removable import Rules, age, find_removable
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.ledger import Entry, Ledger
from tests.commands.run_folders import write_run

FAILED = Rules(failed=True)


@pytest.fixture
def outputs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path / "outputs"


def gone(outputs, rules):
    """What is left after cleaning, of what there was: names of folders."""
    before = {path.name for path in outputs.rglob("*") if (path / ".hydra").exists()}
    assert clean(outputs, rules, yes=True).exit_code == 0
    return sorted(before - {path.name for path in outputs.rglob("*") if (path / ".hydra").exists()})


def with_checkpoints(folder, *names, size=1000):
    folder.checkpoints.mkdir()
    for name in names:
        (folder.checkpoints / name).write_bytes(bytes(size))
    return folder


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        (FAILED, ["c"]),
        (Rules(keep_best=1), ["a", "c"]),
        (Rules(keep_best=0), ["a", "b", "c"]),
        (Rules(keep_best=5), []),
        (Rules(hours=48), ["a"]),
        (Rules(hours=48, failed=True), []),
        (Rules(hours=0, keep_best=1, failed=True), ["c"]),
    ],
)
def test_runs_that_fit_all_rules_go(outputs, rules, expected):
    old = write_run(outputs / "day" / "a", acc=70)
    for path in (old.config, old.result):
        os.utime(path, (1, time.time() - 72 * 3600))
    write_run(outputs / "day" / "b", acc=99)
    write_run(outputs / "other" / "c", acc=50, status="failed")
    assert gone(outputs, rules) == expected
    assert (outputs / "other").exists() == ("c" not in expected)  # a day without runs goes too


def test_it_says_what_and_asks(outputs, capsys, monkeypatch):
    with_checkpoints(write_run(outputs / "a", status="failed"), "last.pt", size=10**6)
    with pytest.raises(ConfigurationError, match="there is no terminal to ask on"):
        clean(outputs, FAILED, yes=False)
    assert "1.0 MB  outputs/a  failed" in capsys.readouterr().out
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("builtins.input", lambda _: "")
    answer = clean(outputs, FAILED, yes=False)
    answer.show()
    assert answer.exit_code == 3
    assert (outputs / "a").exists()
    monkeypatch.setattr("builtins.input", lambda _: "y")
    assert clean(outputs, FAILED, yes=False).exit_code == 0
    assert not (outputs / "a").exists()
    assert outputs.exists()


def test_without_a_rule_nothing_goes(outputs):
    write_run(outputs / "a")
    with pytest.raises(ConfigurationError, match="no rule selects the runs"):
        clean(outputs, Rules(), yes=True)
    with pytest.raises(ConfigurationError, match="--older 30 is not allowed"):
        age("30")
    assert (age("12h"), age("30d"), age("2w")) == (12, 720, 336)


def test_a_running_one_stays(outputs, capsys):
    folder = write_run(outputs / "a", status="failed")
    with folder.locked():
        assert gone(outputs, Rules(keep_best=0)) == []
        found = find_removable(outputs, FAILED)[0]  # what it said of the attempt before
        with pytest.raises(ConfigurationError, match="by another process"):
            remove(found[0], top=outputs)
    folder.result.unlink()
    with folder.locked():
        assert gone(outputs, Rules(keep_best=0)) == []
        assert "it is running" in capsys.readouterr().out


def test_checkpoints_only(outputs):
    done = with_checkpoints(write_run(outputs / "a"), "best.pt", "last.pt", "step_00000001.pt", "notes.txt")
    with_checkpoints(write_run(outputs / "b", status="interrupted"), "best.pt", "last.pt", "step_00000001.pt")
    with_checkpoints(write_run(outputs / "c"), "last.pt")
    (one, other), _ = find_removable(outputs, Rules(checkpoints=True))
    assert (one.size, other.size) == (2000, 1000)
    assert gone(outputs, Rules(checkpoints=True)) == []
    left = {path.name: sorted(os.listdir(path / "checkpoints")) for path in outputs.iterdir()}
    assert left == {"a": ["best.pt", "notes.txt"], "b": ["best.pt", "last.pt"], "c": ["last.pt"]}
    assert done.read_result()["status"] == "completed"


def test_what_a_checkpoint_of_two_names_takes_is_not_freed(outputs):
    folder = with_checkpoints(write_run(outputs / "a"), "last.pt")
    os.link(folder.last_checkpoint, folder.best_checkpoint)
    assert [one.size for one in find_removable(outputs, Rules(checkpoints=True))[0]] == [0]


class TestSweeps:
    @pytest.fixture
    def sweep(self, outputs):
        sweep = outputs / "sweeps" / "s"
        Ledger(sweep).create({}, Entry(0, "0", [], state="failed"), Entry(1, "1", []))
        write_run(sweep / "0", status="failed")
        with_checkpoints(write_run(sweep / "1"), "best.pt", "last.pt")
        return sweep

    def test_a_sweep_goes_as_a_whole_or_not_at_all(self, outputs, sweep, capsys):
        assert gone(outputs, FAILED) == []
        assert "1 of the sweep's 2 jobs are to be kept" in capsys.readouterr().out
        assert gone(outputs, Rules(keep_best=0)) == ["0", "1"]
        assert not sweep.exists()

    def test_its_checkpoints_can_go_and_its_ledger_stays_true(self, outputs, sweep):
        before = Ledger(sweep).entries()
        assert gone(outputs, Rules(checkpoints=True)) == []
        assert os.listdir(sweep / "1" / "checkpoints") == ["best.pt"]
        assert Ledger(sweep).entries() == before

    def test_a_running_one_stays(self, outputs, sweep):
        with Ledger(sweep).locked():
            assert gone(outputs, Rules(keep_best=0)) == []

    def test_a_ledger_cannot_lead_out(self, outputs, sweep, tmp_path):
        write_run(tmp_path / "mine", status="failed")
        Ledger(sweep).write(Entry(2, "../../../mine", [], state="failed"))
        gone(outputs, Rules(keep_best=0))
        assert (tmp_path / "mine" / "run.yaml").exists()


class TestAttacks:
    """Whatever lies in a folder of runs: nothing outside of it goes, and nothing that is no run's."""

    @pytest.fixture
    def mine(self, tmp_path):
        write_run(tmp_path / "mine" / "run", status="failed")
        (tmp_path / "mine" / "last.pt").touch()
        (tmp_path / "mine" / "step_00000001.pt").touch()
        return tmp_path / "mine"

    def contents(self, folder):
        return sorted(str(path) for path in folder.rglob("*"))

    @pytest.mark.parametrize("rules", [FAILED, Rules(keep_best=0), Rules(checkpoints=True)])
    def test_links_are_not_followed(self, outputs, mine, rules):
        before = self.contents(mine)
        run = write_run(outputs / "a", status="failed")
        run.checkpoints.symlink_to(mine)
        run.tensorboard.mkdir()
        (run.tensorboard / "link").symlink_to(mine)
        run.logs.symlink_to(mine)
        (outputs / "b").symlink_to(mine / "run")
        (outputs / "c").mkdir()
        (outputs / "c" / "run.yaml").symlink_to(mine / "run" / "run.yaml")
        gone(outputs, rules)
        assert self.contents(mine) == before

    def test_a_link_in_the_place_of_checkpoints_is_noticed_at_the_last_moment(self, outputs, mine):
        run = with_checkpoints(write_run(outputs / "a"), "best.pt", "step_00000001.pt")
        (found,), _ = find_removable(outputs, Rules(checkpoints=True))
        shutil.rmtree(run.checkpoints)
        run.checkpoints.symlink_to(mine)
        with pytest.raises(ConfigurationError, match="is a link"):
            remove(found, top=outputs)
        assert (mine / "step_00000001.pt").exists()

    @pytest.mark.parametrize("by", ["a link", "a folder"])
    @pytest.mark.parametrize("rules", [Rules(keep_best=0), Rules(checkpoints=True)], ids=["run", "checkpoints"])
    def test_a_folder_above_that_is_replaced_during_the_question(
        self, outputs, tmp_path, monkeypatch, capsys, by, rules
    ):
        with_checkpoints(write_run(outputs / "day" / "src"), "best.pt", "step_00000001.pt").result.unlink()
        mine = tmp_path / "project" / "src"
        (mine / "checkpoints").mkdir(parents=True)
        for name in ("thesis.tex", "checkpoints/step_00000001.pt"):
            (mine / name).write_text("ten years of work")

        def attacked(question):
            (outputs / "day").rename(outputs / ".gone")
            (outputs / "day").symlink_to(mine.parent) if by == "a link" else mine.parent.rename(outputs / "day")
            return True

        monkeypatch.setattr("manyheads.runner.commands.clean.is_confirmed", attacked)
        clean(outputs, rules, yes=False).show()
        assert "stays: " in capsys.readouterr().out
        assert len(list((mine if by == "a link" else outputs / "day" / "src").rglob("*.*"))) == 2

    def test_a_run_without_a_result_that_ends_during_the_question_stays(self, outputs, monkeypatch, capsys):
        run = with_checkpoints(write_run(outputs / "a"), "last.pt")
        result = run.result.read_text()
        run.result.unlink()

        def ended(question):
            run.result.write_text(result)
            return True

        monkeypatch.setattr("manyheads.runner.commands.clean.is_confirmed", ended)
        clean(outputs, Rules(keep_best=0), yes=False).show()
        assert "has changed meanwhile: it is completed" in capsys.readouterr().out
        assert run.result.exists()

    @pytest.mark.parametrize("name", ["thesis.tex", "src", ".git"])
    def test_a_folder_with_something_else_in_it_stays(self, outputs, capsys, name):
        run = write_run(outputs / "a", status="failed")
        (run.path / name).mkdir()
        assert gone(outputs, FAILED) == []
        assert f"it contains {name}, which does not belong to the run" in capsys.readouterr().out

    def test_between_a_sweep_s_jobs_too(self, outputs):
        sweep = outputs / "s"
        Ledger(sweep).create({})
        write_run(sweep / "deep" / "0", status="failed")
        (sweep / "deep" / "thesis.tex").touch()
        assert gone(outputs, FAILED) == []
        (sweep / "deep" / "thesis.tex").unlink()
        assert gone(outputs, FAILED) == ["0"]

    @pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser can give files to another user")
    @pytest.mark.parametrize("rules", [Rules(keep_best=0), Rules(checkpoints=True)], ids=["run", "checkpoints"])
    def test_a_folder_in_which_another_user_wrote_a_config_stays(self, outputs, capsys, rules):
        run = with_checkpoints(write_run(outputs / "a"), "step_00000001.pt")
        os.chown(run.config, 65534, 65534)
        assert gone(outputs, rules) == []
        assert "another user wrote the config in a" in capsys.readouterr().out
        assert (run.checkpoints / "step_00000001.pt").exists()

    def test_what_another_program_left_stays(self, outputs):
        (outputs / "a" / ".hydra").mkdir(parents=True)
        (outputs / "a" / ".hydra" / "config.yaml").write_text("db: mysql\n")
        (outputs / "b").mkdir()
        (outputs / "b" / "run.yaml").write_text("steps: [compile, test]\n")
        assert gone(outputs, Rules(keep_best=0)) == []
        assert (outputs / "b" / "run.yaml").exists()


def test_all_that_a_real_run_leaves_is_known(tmp_path, finished_run):
    shutil.copytree(finished_run.path, tmp_path / "run")
    found, staying = find_removable(tmp_path, Rules(keep_best=0))
    assert ([each.path.name for each in found], staying) == (["run"], [])
