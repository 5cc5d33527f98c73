"""Arms that cheat: each cheat has no effect, or is found."""

import dataclasses
import shlex
import sys
import time
from dataclasses import asdict

import psutil
import pytest

from manyheads.runner.answers.judge.command.arm_runs import ArmFiles, ArmRuns
from manyheads.runner.answers.judge.command.command_question import CommandQuestion
from manyheads.runner.answers.judge.terms import FOUND
from manyheads.runner.answers.measure.rows import BASE, CHANGE, COMPLETED, FAILED, ROUND
from manyheads.runner.errors import ConfigurationError

pytestmark = pytest.mark.processes
QUESTION = CommandQuestion(
    change="",
    on="loss",
    least=0.0,
    alpha=0.05,
    test="mean",
    draw="1",
    command="echo loss: 1",
    against="echo loss: 2",
    revision=None,
    within=".",
    code=["", ""],
    files=[],
    signs={"loss": -1},
    result=None,
    evaluator=None,
    frozen=[],
    shared=[],
    same=None,
)


@pytest.fixture
def arms(tmp_path):
    """Runs both arms' commands on a file eval.sh; returns their rows, and the refusals that follow."""
    original = tmp_path / "original"
    original.mkdir()
    (original / "eval.sh").write_text("echo loss: 7\n")

    def run(command, against="echo loss: 2", timeout=60.0, **asked):
        question = dataclasses.replace(QUESTION, command=command, against=against, **asked)
        runs = ArmRuns(tmp_path / "judged", question, ArmFiles(original, original, tmp_path / "scratch", []))
        runs.folder.mkdir()
        runs.ledger.create(asdict(question))
        rows = [runs.start(ROUND, arm, 0, turn, timeout=timeout) for turn, arm in enumerate((BASE, CHANGE))]
        return rows, question.refusals(rows)

    (tmp_path / "scratch").mkdir()
    return run


def console(tmp_path, number):
    (path,) = (tmp_path / "judged").glob(f"runs/{number:04d}-round/console.log")
    return path.read_text()


def test_a_printed_number_does_not_count_if_there_is_an_evaluator(arms):
    rows, refusals = arms("echo loss: 0", evaluator="sh eval.sh {folder}", frozen=["eval.sh"])
    assert [row.findings[FOUND] for row in rows] == [{"loss": 7.0}] * 2
    assert refusals == ()


def test_an_evaluator_reads_what_the_arm_left(arms):
    rows, _ = arms("echo loss: 3 > left", "echo loss: 4 > left", evaluator="cat {folder}/left")
    assert [row.findings[FOUND]["loss"] for row in rows] == [3, 4]


@pytest.mark.parametrize(
    "cheat",
    [
        "echo echo loss: 0 > eval.sh",
        "cp eval.sh kept; echo echo loss: 0 > eval.sh; cat kept > eval.sh; touch -d @1 eval.sh",
        "mv eval.sh other; ln -s other eval.sh",
        "rm eval.sh",
    ],
)
def test_a_frozen_file_that_was_changed_or_restored_is_found(arms, cheat):
    _, refusals = arms("echo loss: 1", f"{cheat}; echo loss: 1", frozen=["eval.sh"])
    assert refusals == ("run 1, of change, changed eval.sh, which no arm may change",)


def test_the_original_of_the_files_is_watched(arms):
    _, refusals = arms("for f in ../../original/eval.sh; do echo >> $f; done; echo loss: 1")
    assert refusals == ("run 0, of base, changed eval.sh, which no arm may change",)


def test_no_arm_finds_what_another_run_left(arms):
    rows, _ = arms("touch trace $TMPDIR/trace; echo loss: 1", "echo loss: $(ls . $TMPDIR | grep -c ^trace)")
    assert [row.findings[FOUND]["loss"] for row in rows] == [1, 0]


@pytest.mark.parametrize("daemon", ["setsid sleep 600 &", "(env -i setsid sleep 600 > /dev/null 2>&1 &) &"])
def test_no_process_outlives_its_run(arms, daemon):
    rows, _ = arms(f"{daemon} sleep 0.2; echo loss: 1")
    assert rows[0].findings["outlived"] > 0
    assert not [each for each in psutil.process_iter(["cmdline"]) if each.info["cmdline"] == ["sleep", "600"]]


@pytest.mark.parametrize(
    "kill",
    [
        "setsid sleep 700 & kill -9 $PPID; sleep 700",
        "env -i setsid sleep 700 & sleep 0.2; kill -9 $PPID",
        "setsid sleep 700 & sleep 0.2; kill -9 $(ps -o ppid= -p $PPID) $PPID",
    ],
)
def test_an_arm_that_kills_its_supervisor_loses_the_round_and_leaves_nothing(arms, kill):
    rows, _ = arms("echo loss: 1", kill)
    assert [row.state for row in rows] == [COMPLETED, FAILED]
    assert "its supervisor was killed" in rows[1].reason
    until = time.monotonic() + 10
    while left := [
        process for process in psutil.process_iter(["cmdline"]) if process.info["cmdline"] == ["sleep", "700"]
    ]:
        assert time.monotonic() < until, left


def test_an_arm_that_hangs_loses_the_round(arms):
    rows, _ = arms("echo loss: 1", "sleep 60", timeout=1.0)
    assert (rows[1].state, rows[1].reason.rpartition(": ")[2]) == (FAILED, "it took longer than 1 s")


def test_a_result_that_the_run_did_not_write_is_absent(arms, tmp_path):
    (tmp_path / "original" / "metrics.json").write_text('{"val": {"loss": 0}}')
    write = 'echo \'{"val": {"loss": 5}}\' > metrics.json'
    rows, _ = arms(write, "true", result="metrics.json:val.loss")
    assert rows[0].findings[FOUND] == {"loss": 5.0}
    assert rows[1].reason == "--result: the run wrote no metrics.json"


def test_a_line_that_an_arm_adds_to_the_ledger_is_found(arms):
    ledger = '"$(dirname "$(readlink /proc/self/fd/2)")/../../judgement.jsonl"'
    with pytest.raises(ConfigurationError, match="cannot be continued: line 3"):
        arms(f"echo '{{}}' >> {ledger}; echo loss: 1")


def test_nothing_tells_an_arm_which_one_it_is(arms, tmp_path):
    look = "pwd; env | grep -v MANYHEADS_SEED | sort; readlink /proc/self/fd/2 | sed s/000[01]//; echo loss: 1"
    arms(look, look)
    assert console(tmp_path, 0) == console(tmp_path, 1)


@pytest.mark.parametrize(
    "patch",
    [
        "import time; time.perf_counter = time.time = lambda: 0.0",
        pytest.param("import time, torch; torch.cuda.Event.elapsed_time = lambda *_: 0.0", marks=pytest.mark.ci),
    ],
)
def test_seconds_are_those_of_a_clock_that_the_arm_does_not_have(arms, patch):
    rows, _ = arms(f'{shlex.quote(sys.executable)} -c "{patch}; time.sleep(0.3); print(0)"; echo loss: 1')
    assert rows[0].findings["seconds"] >= 0.3
    assert rows[0].findings["marked"] >= 0.29
