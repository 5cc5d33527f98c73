"""Judgements of commands: verdicts, continuation, and questions that are refused."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import manyheads
from manyheads.runner.answers.judge.command.command_question import CommandQuestion
from manyheads.runner.answers.judge.command.command_terms import CommandTerms
from manyheads.runner.answers.judge.recorded import faults
from tests.answers.judge.test_judge import COMMAND
from tests.conftest import ROOT

pytestmark = pytest.mark.processes
TRAIN = ("--command", "sh train.sh {seed}", "--code", "HEAD", "--on", "loss")
NAMED = "hydra.sweep.dir=outputs/judged"


def content():
    return json.loads(Path("outputs/judged/judgement.json").read_text())


def test_changed_files_are_judged_against_a_revision(project):
    project.gain(50)
    before = project.state()
    done = project.judge(*TRAIN, NAMED)
    assert done.code == 0, done.out + done.err
    assert "train.sh: not as in the revision" in done.out
    assert " gain in loss (0.0" in done.out
    assert "has no {seed}" not in done.out
    assert "The numbers are those that the command itself reports" in done.out
    assert project.state() == before
    rows = [line["content"] for line in content()["lines"][1:]]
    measured = [row for row in rows if row["state"] == "completed" and row["purpose"] != "trial"]
    assert len({row["seed"] for row in measured}) == len(measured)
    assert faults(content()) == []
    assert project.judge("--check", "outputs/judged").code == 0
    again = project.judge(*TRAIN, NAMED)  # asked again, it runs nothing
    assert (again.code, [line["content"] for line in content()["lines"][1:]]) == (0, rows)
    page = Path("outputs/judged/judgement.html").read_text()
    assert "train.sh" in page


def test_a_worse_command_is_discarded_and_somebody_else_s_is_not_run(project):
    project.write("worse.sh", "echo loss=0.9$(($1 % 10))")
    done = project.judge(*TRAIN[:2], "--against", "sh worse.sh {seed}", "--on", "loss", NAMED)
    assert done.code == 3, done.out + done.err
    assert "discard: " in done.out
    assert "loss in loss" in done.out
    lines = content()["lines"]
    for line in lines:
        line["seal"] = None
    project.write("outputs/theirs.json", json.dumps({**content(), "lines": lines}))
    refused = project.judge("--again", "outputs/theirs.json")
    assert refused.code == 2
    assert "somebody else's command" in refused.err
    assert "--against" in refused.err


@pytest.mark.ci
def test_the_user_s_own_judgement_is_repeated(project):
    assert project.judge("--command", "sleep 0.2", "--against", "sleep 0.02", "--on", "seconds", NAMED).code == 0
    again = project.judge("--again", "outputs/judged", "hydra.sweep.dir=outputs/again")
    assert again.code == 0, again.err
    assert "was not checked" in again.out


def test_paired_runs_have_the_same_seed(project):
    """Both arms depend on the seed in the same way, by much more than they differ."""
    line = "echo loss: $(({seed} % 1000 + {gain}))"
    commands = ("--command", line.replace("{gain}", "500"), "--against", line.replace("{gain}", "0"))
    done = project.judge(*commands, "--on", "loss", "--paired", NAMED)
    assert done.code == 0, done.out + done.err
    rounds = [line["content"] for line in content()["lines"][1:] if line["content"]["purpose"] == "round"]
    seeds = {(row["round"], row["seed"]) for row in rounds}
    assert len(seeds) == len({row["round"] for row in rounds})
    assert {round(gain, 6) for gain in content()["claims"]["effects"][0]["differences"]} == {500}
    assert faults(content()) == []


def test_a_faster_command_is_kept(project):
    done = project.judge("--command", "sleep 0.2", "--against", "sleep 0.02", "--on", "seconds", NAMED)
    assert done.code == 0, done.out + done.err
    assert "fewer seconds" in done.out
    assert "Whether both arms compute the same was not checked" in done.out


@pytest.mark.parametrize(("tolerance", "code"), [("", 2), pytest.param(":0.5", 0, marks=pytest.mark.ci)])
def test_seconds_of_arms_that_must_agree(project, tolerance, code):
    slow, fast = 'sleep 0.2; echo "loss: 1.0"', 'echo "loss: 1.1"'
    words = ("--command", slow, "--against", fast, "--on", "seconds", "--same", f"loss{tolerance}")
    done = project.judge(*words)
    assert done.code == code, done.out + done.err
    assert code == 0 or "both arms must give the same loss, but with the same seed run 0 gave 1.0" in done.err
    assert "was not checked" not in done.out


def test_a_command_that_ignores_its_seed_is_refused_for_a_number(project):
    done = project.judge("--command", "echo loss: 0.5", "--against", "echo loss: 0.4", "--on", "loss")
    assert done.code == 2
    assert "3 runs of base with different seeds gave the same loss to the last bit" in done.err
    assert "Put {seed} into the command, or have the script read MANYHEADS_SEED. Such arms" in done.err


def test_a_change_that_fails_is_discarded(project):
    done = project.judge(*TRAIN[:2], "--against", "echo planted; exit 7", "--on", "loss")
    assert done.code == 3
    assert "the change fails where base does not" in done.out
    assert "exit code 7. It ends with: planted" in done.out


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--command", "exit 3", "--against", "true", "--on", "loss"), 1, "exit code 3"),
        (
            ("--command", "echo hello", "--against", "true", "--on", "loss"),
            2,
            "has no number loss. Print a line such as 'loss: 0.5'.*ends with: hello",
        ),
        (
            ("--command", "echo top=0.5; seq 3", "--against", "true", "--on", "tops", "--higher"),
            2,
            "has no number tops. Did you mean top\\?.*ends with: 1",
        ),
        (("--command", "echo loss: nan", "--against", "true", "--on", "loss"), 2, "loss is nan"),
        (("--command", "sleep 60", "--against", "true", "--on", "loss", "--timeout", "1s"), 1, "took longer than 1 s"),
        ((*TRAIN[:2], "--on", "loss"), 2, "--against"),
        ((*TRAIN[:2], "--code", "HEAD"), 2, "--on seconds, for the time of the whole process"),
        ((*TRAIN[:4], "--on", "score"), 2, "Is a lower score better, or a higher one"),
        ((*TRAIN[:2], "--code", "nowhere", "--on", "loss"), 2, "no such revision"),
        (TRAIN, 2, "no file differs"),
        (("model=mlp", "--share", "data"), 2, "--share requires --command"),
        (("model=mlp", "--change", "optimizer.lr=1", "--higher"), 2, "a metric of a config has a direction"),
        ((*TRAIN, "model=mlp"), 2, "has no overrides"),
        ((*TRAIN[:4], "--on", "seconds", "--paired"), 2, "--paired gives both runs of a round the same seed"),
        ((*TRAIN, "--same", "loss"), 2, "--same requires --on seconds"),
        ((*TRAIN, "--share", "data"), 2, "--share data does not exist"),
        ((*TRAIN[:2], "--against", "true", "--on", "loss", "--frozen", "eval.py"), 2, "--frozen eval.py is not among"),
        ((*TRAIN[:2], "--against", "true", "--on", "loss", "--share", "train.sh"), 2, "is copied anyway"),
    ],
)
def test_what_cannot_be_asked_is_refused(project, words, code, said):
    done = project.judge(*words)
    assert done.code == code, done.out + done.err
    assert re.search(said, done.err), done.err


def test_shared_files_can_be_read_and_not_written(project):
    project.write("data/scale", "1")
    command = "echo changed > data/scale; echo loss: $(cat data/scale).{seed}"
    words = ("--against", command.replace("loss: ", "loss: 9"), "--on", "loss", "--share", "data", NAMED)
    done = project.judge("--command", command, *words)
    assert done.code == 3, done.out + done.err
    assert "gain" not in done.out.partition("Noise floor")[0]
    assert (project.folder / "data" / "scale").read_text() == "1"


@pytest.mark.ci
@pytest.mark.needs("mount")
def test_where_judge_may_not_mount_it_says_once_that_shared_files_are_links(project):
    project.write("data/scale", "1")
    words = ("--against", "echo planted; exit 7", "--on", "loss", "--share", "data")
    line = ("--command", "echo loss: $(cat data/scale).$MANYHEADS_SEED")
    bounded = ("setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin", *COMMAND)
    done = subprocess.run([*bounded, *line, *words], capture_output=True, text=True)
    assert done.returncode == 3, done.stderr
    assert done.stderr.count("shared files are links") == 1
    assert "shared files are links" not in project.judge(*line, *words, NAMED).err


@pytest.mark.ci
def test_from_python_it_gives_the_same_verdict(project):
    commands = {"command": "sleep 0.2", "against": "sleep 0.02"}
    verdict = manyheads.judge(**commands, on="seconds")
    assert verdict
    assert verdict.low > 0
    assert project.judge("--check", str(verdict.path)).code == 0
    with pytest.raises(manyheads.ConfigurationError, match="--on seconds, for the time of the whole process"):
        manyheads.judge(**commands)


def test_what_git_ignores_in_a_folder_is_shared_also_one_beside_the_working_directory(project, monkeypatch):
    """Some files of the folder are tracked, and so copied."""
    project.write(".gitignore", "outputs/\n*.bin\ncache/\n")
    project.write("data/make.sh", "echo 1")
    project.write("data/scale.bin", "1")
    project.write("data/cache/more", "2")
    project.write("sub/run.sh", "cd ../data && sh make.sh && cat scale.bin cache/more && echo && echo loss: 1.$1")
    project.commit()
    monkeypatch.chdir(project.folder / "sub")
    words = ("--command", "sh run.sh {seed}", "--against", "echo planted; exit 7", "--on", "loss")
    done = project.judge(*words, "--share", "../data")
    assert done.code == 3, done.out + done.err
    refused = project.judge(*words)
    assert refused.code == 1
    assert "What git ignores, a run only has with --share" in refused.err
    assert project.judge(*words, "--share", "../../other").code == 2


def test_no_part_of_it_imports_torch_or_what_trains():
    code = (
        "import sys, manyheads.runner.answers.judge.command.judge_command; "
        "print({'torch', 'numpy', 'hydra', 'omegaconf', 'manyheads.launchers'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT / ".names", capture_output=True, text=True)
    assert done.stdout.strip() == "set()", done.stderr


@pytest.mark.parametrize(
    ("signs", "words"),
    [({"loss": -1}, ["--lower"]), ({"score": 1}, ["--higher"]), ({"acc": 1, "loss": -1}, [])],
)
def test_asked_again_each_number_keeps_its_direction_and_paths_are_those_of_the_working_directory(signs, words):
    fixed = {"least": 0.0, "alpha": 0.05, "test": "mean", "draw": "0", "command": "run", "against": "other"}
    none = {"revision": None, "result": None, "evaluator": None, "same": None, "files": [], "code": ["a", "a"]}
    paths = {"within": "sub", "frozen": ["sub/eval.py"], "shared": ["sub/data"]}
    question = CommandQuestion(change="other", on=",".join(signs), signs=signs, **fixed, **none, **paths)
    asked = question.arguments()
    assert [word for word in asked if word in ("--lower", "--higher")] == words
    assert (question.flags()["frozen"], question.flags()["share"]) == ("eval.py", "data")
    assert "--paired" not in asked
    assert "--paired" in replace(question, test="paired").arguments()
    values = {"on": question.on, "test": "mean"} | question.flags()
    assert CommandTerms(**values).signs == signs
