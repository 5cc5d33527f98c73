"""``record`` with real runs: made, read from a sweep, checked, repeated."""

import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from manyheads.runner.__main__ import main
from manyheads.runner.answers.record.make_record import check, gather
from manyheads.runner.errors import ConfigurationError, ExitCode
from manyheads.runner.records.run_set import gather as runs_of
from manyheads.runner.run.ledger import Ledger
from manyheads.runner.run.progress import EVENT
from manyheads.runner.run.run_folder import RunFolder
from tests.conftest import FAST, execute
from tests.tail import tail

pytestmark = pytest.mark.ci

COMMAND = (sys.executable, "-m", "manyheads.runner", "record")
TINY = [each for each in FAST if not each.startswith("hydra")]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The command's end, and the sweep's folder: two recipes, two runs each."""
    place = tmp_path_factory.mktemp("record")
    recipes = (*TINY, "optimizer.lr=0.05,0.02", f"hydra.sweep.dir={place / 'sweep'}")
    asked = (*recipes, "--runs", "2", "--target", "val_acc1=1", "--progress", "json")
    return execute(*COMMAND, *asked, cwd=place), place / "sweep"


@pytest.fixture
def sweep(made, tmp_path):
    return Path(shutil.copytree(made[1], tmp_path / "sweep"))


def test_recipes_run_in_turn_with_seeds_of_their_own(made):
    done, sweep = made
    record = json.loads((sweep / "record.json").read_text())
    assert done.code in (0, 3), done.err
    assert [(entry.job, entry.repeat) for entry in Ledger(sweep).entries()] == [(0, 1), (1, 1), (0, 2), (1, 2)]
    assert [each["label"] for each in record["contenders"]] == ["optimizer.lr=0.05", "optimizer.lr=0.02"]
    assert [[attempt["seed"] for attempt in each["attempts"]] for each in record["contenders"]] == [[1, 2], [1, 2]]
    assert "val_acc1 ≥ 1" in done.out


def test_programs_see_how_far_it_is(made):
    events = [json.loads(line) for line in made[0].err.splitlines() if line.startswith(EVENT)]
    assert [each["event"] for each in events].count("ended") == 4
    assert EVENT not in made[0].out


def test_what_is_claimed_is_what_the_runs_measured(made):
    record = gather(made[1], target="val_acc1=1", clock="wall")
    results = {job.run.folder.name: RunFolder(job.run.folder).read_result() for job in runs_of([str(made[1])]).jobs}
    for contender in record.contenders:
        for attempt in contender.attempts:
            assert attempt.value == results[attempt.folder]["metrics"]["val_acc1"]
            assert attempt.seconds == results[attempt.folder]["wall_seconds"]
            assert attempt.weights_sha256 == results[attempt.folder]["weights_sha256"]
    assert record.to_json()["contenders"][0]["seconds"]["n"] == 2


def test_the_page_shows_it_and_nothing_that_runs(made):
    page = (made[1] / "record.html").read_text()
    assert "val_acc1 ≥ 1" in page
    assert page.count("<svg") == 1
    assert "<script" not in page
    assert "http://" not in page.replace("http://www.w3.org", "").replace("http://purl.org", "").replace(
        "http://creativecommons.org", ""
    )


def test_losses_are_better_when_lower(made):
    assert str(gather(made[1], target="val_loss=3", clock="training").target) == "val_loss ≤ 3"


def test_a_record_is_checked(made, tmp_path):
    path = made[1] / "record.json"
    done = execute(*COMMAND, "--check", str(path), cwd=tmp_path)
    assert done.code == 0
    assert "all claims follow from the runs" in done.out


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda record: record["contenders"][0]["value"].update(mean=99.0),
            "contenders.0.value.mean: the file claims 99.0",
        ),
        (lambda record: record["contenders"][1].update(p_of_target=1e-9), "contenders.1.p_of_target"),
        (lambda record: record["contenders"][0]["config"].update(seed=7), "contenders.0.signature"),
        (
            lambda record: [attempt.update(seed=3) for attempt in record["contenders"][0]["attempts"]],
            "contenders.0.attempts: seed 3 is repeated",
        ),
        (
            lambda record: record["contenders"][1]["attempts"][1].update(samples=1),
            "contenders.1.attempts.1.samples: it took 1,",
        ),
        (lambda record: record["contenders"][1]["attempts"][0].update(machine="x"), "contenders.1.attempts.0.machine"),
        (lambda record: record["contenders"][0]["attempts"][1].update(code="x"), "contenders.0.attempts.1.code"),
        (
            lambda record: record["contenders"][0]["attempts"][0].update(wall_seconds=1e-6),
            "contenders.0.attempts.0.seconds",
        ),
    ],
    ids=["mean", "p", "config", "seed", "samples", "machine", "code", "clock"],
)
def test_a_forged_one_is_found_out(made, tmp_path, change, said):
    record = json.loads((made[1] / "record.json").read_text())
    change(record)
    (tmp_path / "record.json").write_text(json.dumps(record))
    checked = check(tmp_path / "record.json")
    assert checked.exit_code == ExitCode.NO
    assert any(each.startswith(said) for each in checked.wrong), checked.wrong


def test_a_forged_one_is_shown(made, tmp_path, capsys):
    record = json.loads((made[1] / "record.json").read_text())
    record["contenders"][0]["value"].update(mean=99.0)
    (tmp_path / "record.json").write_text(json.dumps(record))
    assert main(["record", "--check", str(tmp_path / "record.json")]) == 3
    said = "does not follow from the runs: contenders.0.value.mean: the file claims 99.0"
    assert said in capsys.readouterr().out


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"format": 9}',
        '{"format": 1, "target": {}, "contenders": []}',
        '{"format": 2, "target": {}, "contenders": [5]}',
    ],
)
def test_what_is_no_record_is_refused(tmp_path, monkeypatch, capsys, content):
    monkeypatch.chdir(tmp_path)
    Path("record.json").write_text(content)
    assert main(["record", "--check", "record.json"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: record.json: ")
    assert "Error: " not in said


@pytest.mark.parametrize("case", [tail("again")])
def test_it_is_timed_on_another_machine(made, tmp_path, case):
    done = execute(*COMMAND, "--again", str(made[1] / "record.json"), "--runs", "2", cwd=tmp_path)
    assert done.code in (0, 3), done.err
    (path,) = tmp_path.glob("outputs/sweeps/*/*/record.json")
    claimed = json.loads((made[1] / "record.json").read_text())["contenders"][0]
    repeated = json.loads(path.read_text())["contenders"][0]
    weights = [[attempt["weights_sha256"] for attempt in each["attempts"]] for each in (claimed, repeated)]
    assert weights[0] == weights[1]


@pytest.mark.parametrize("way", ["--check", "a sweep"])
def test_somebody_else_s_declarations_are_not_imported(made, sweep, tmp_path, monkeypatch, way):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another"))
    (tmp_path / "canary.py").write_text("import pathlib\npathlib.Path('mark').touch()\nclass Net: pass\n")
    record = json.loads((made[1] / "record.json").read_text())
    record["contenders"][0]["config"]["model"]["_option_"] = "canary.Net"
    (tmp_path / "record.json").write_text(json.dumps(record))
    for path in sweep.glob("*/run.yaml"):
        path.write_text(re.sub(r"_option_: manyheads\.runner\.model\S+", "_option_: canary.Net", path.read_text()))
        assert "canary" in path.read_text()
    arguments = ("--check", "record.json") if way == "--check" else (str(sweep), "--target", "val_acc1=1")
    done = execute(*COMMAND, *arguments, cwd=tmp_path)
    assert done.code == 2, done.out + done.err
    assert "canary" in done.err
    assert not (tmp_path / "mark").exists()


def test_somebody_else_s_classes_are_not_run(made, tmp_path):
    record = json.loads((made[1] / "record.json").read_text())
    record["contenders"][0]["config"]["model"]["_target_"] = "os.system"
    (tmp_path / "record.json").write_text(json.dumps(record))
    done = execute(*COMMAND, "--again", "record.json", "--runs", "2", cwd=tmp_path)
    assert done.code == 2
    assert "os.system" in done.out + done.err
    assert not [*tmp_path.glob("outputs/sweeps/*/*/ledger.jsonl")]


def test_a_sweep_with_a_failed_run_makes_none(sweep):
    ledger = Ledger(sweep)
    ledger.write(ledger.entries()[1].now("failed", reason="for a test"))
    with pytest.raises(ConfigurationError, match="run 1, repeat 1, is failed. A record counts every run"):
        gather(sweep, target="val_acc1=1", clock="training")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--target", "val_acc1"), "--target val_acc1 is not allowed. Allowed: a metric and a number"),
        (("--target", "val_acc9=3"), "val_acc9: the runs did not measure that. Allowed: train_loss"),
        (("--runs", "1", "--target", "val_acc1=1"), "--runs 1 is not allowed"),
        ((), "Name the target: --target val_acc1=94"),
    ],
)
def test_mistakes_are_told(made, arguments, said, tmp_path):
    done = execute(*COMMAND, str(made[1]), *arguments, cwd=tmp_path)
    assert done.code == 2
    assert said in done.err


def test_repeats_are_the_record_s_own(tmp_path):
    done = execute(*COMMAND, "hydra.launcher.repeat=3", "--target", "val_acc1=1", cwd=tmp_path)
    assert done.code == 2
    assert "hydra.launcher.repeat=3: a record sets this itself. Set the number of runs with --runs." in done.err
