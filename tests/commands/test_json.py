"""--json: one object on stdout, of the command's schema, whatever happens; and nothing else there."""

import json
import sys
from dataclasses import is_dataclass
from functools import cache
from pathlib import Path
from typing import get_args

import numpy as np
import PIL.Image
import pytest
from jsonschema import Draft202012Validator

from manyheads.runner.commands import names
from manyheads.runner.commands.schema import answer_of_command, schema_of_command
from manyheads.runner.errors import ExitCode
from manyheads.runner.run.answer import Answer
from manyheads.runner.run.json_schema import schema_of
from manyheads.runner.run.progress import EVENT
from tests.conftest import FAST, ROOT, execute
from tests.tail import tail

pytestmark = pytest.mark.ci

# What each command is tried with; {run}: a finished run, {out}: an empty folder. Others are in tests of their own.
TRIED = {
    "train": [*FAST, "hydra.run.dir={out}/run"],
    "list": ["{run}"],
    "show": ["{run}"],
    "diff": ["{run}", "{run}"],
    "doctor": [],
    "estimate": ["parallel=single,ddp", "launcher.nproc_per_node=2", "--device-memory", "1kB"],
    "schema": ["list"],
    "report": ["{run}", "--to", "{out}/report"],
    "resume": ["{run}", "trainer.max_steps=3", "hydra.run.dir={out}/longer"],
    "new": ["{out}/my_project"],
    "clean": ["{out}", "--failed"],
    "trust": ["{run}", "--yes", "nothing"],
    "convert": ["{run}/checkpoints/last.pt", "--to", "torch", "--out", "{out}/weights.pt"],
    "export": ["{run}", "--format", "safetensors", "--out", "{out}/model.safetensors"],
    "evaluate": ["{run}", "hydra.run.dir={out}/evaluation"],
    "reproduce": ["{run}", "hydra.run.dir={out}/again"],
    "predict": ["{run}", "{out}"],
    "publish": ["{run}"],
    "manifest": ["--for", "kubernetes", "--image", "x", "--volume", "y", "hydra.run.dir={out}/run"],
    "record": ["--check", "{out}/record.json"],
    "parity": ["parallel=ddp", *FAST, "--steps", "1"],
    "explain": [*FAST],
    "scale": ["parallel=ddp", *FAST, "--devices", "2", "--network", "10gbe"],
    "install-horovod": ["--nonsense"],
    "watch": ["{run}"],
    "init": ["{out}"],
    "judge": ["--check", "{out}/judgement.json"],
    "tune": ["--over", "nothing"],
    "audit": ["{run}"],
    "pack": ["{out}", "{out}/shards"],
    "index": ["{out}"],
    "tried": ["{run}"],
    "skill": ["install"],
    "mcp": [],
    "room": [],
    "budget": [],
    "queue": [],
    "work": ["--until-empty"],
}
# Why a command takes no more than two seconds, and need not say how far it is.
INSTANT = {
    "show": "reads the small files of one run",
    "diff": "reads those of two",
    "new": "writes a dozen small files",
    "trust": "reads configs and names of classes",
    "schema": "reads conf/ and the classes of answers",
    "manifest": "composes one config, and starts nothing",
    "watch": "shows nothing but progress",
    "tried": "reads an index of all runs",
    "skill": "writes a small file",
    "mcp": "reports the events of the commands that it calls",
    "room": "reads a file of a few bytes for each run that has not ended",
    "budget": "reads a file with a line for each start of a run",
    "queue": "reads a small file for each run that waits",
    "work": "says when each of its runs begins and ends, whose own progress is in their folders",
}
SHOWN_ELSEWHERE = {
    "predict": "tests/commands/test_json.py::test_what_predict_answers",
    "init": "tests/commands/test_json.py::test_what_init_and_trust_answer_in_a_repository",
    "install-horovod": "tests/commands/install_horovod/test_horovod_wheel.py::test_programs_see_how_far_it_is",
    "publish": "tests/launchers/companions/publishing/test_afterwards.py::test_programs_see_how_far_it_is",
    "judge": "tests/answers/judge/test_judge.py::test_programs_see_how_far_it_is",
    "tune": "tests/answers/tune/test_tune.py::test_programs_see_how_far_it_is",
    "record": "tests/answers/record/test_make_record.py::test_programs_see_how_far_it_is",
    "pack": "tests/commands/pack/test_pack.py::test_programs_see_how_far_it_is",
    "index": "tests/commands/pack/test_pack.py::test_programs_see_how_far_it_is",
}
NO_WIDTH = [each for each in FAST if not each.startswith("model.")]
CODES = {
    "estimate": 3,
    "trust": 2,
    "predict": 2,
    "publish": 2,
    "record": 2,
    "install-horovod": 2,
    "init": 2,
    "judge": 2,
    "tune": 2,
    "pack": 2,
    "index": 2,
    "skill": 2,
    "mcp": 2,
}
QUICK = (
    "train",
    "list",
    "show",
    "diff",
    "doctor",
    "estimate",
    "report",
    "new",
    "trust",
    "predict",
    "record",
    "convert",
)


@cache
def validator(command: str) -> Draft202012Validator:
    return Draft202012Validator(schema_of_command(command))


def answered(command: str, *arguments: str, cwd: Path, code: int = 0) -> dict:
    """The reply of a command, which is all of stdout, and valid."""
    return heard(command, *arguments, cwd=cwd, code=code)[0]


def heard(command: str, *arguments: str, cwd: Path, code: int = 0) -> tuple[dict, list[dict]]:
    """The reply, and the events on stderr meanwhile."""
    words = (command, *arguments, "--json", "--progress", "json")
    done = execute(sys.executable, "-m", "manyheads.runner", *words, cwd=cwd, timeout=240)
    assert done.code == code, done.out + done.err
    reply = json.loads(done.out)
    assert [*validator(command).iter_errors(reply)] == []
    assert (reply["command"], reply["exit_code"]) == (command, code)
    return reply, [json.loads(line) for line in done.err.splitlines() if line.startswith(EVENT)]


def test_every_command_is_tried():
    assert {*TRIED} == {*names()}


def test_every_command_that_may_take_long_shows_what_it_does():
    """Tested by what is tried here; what is refused then shows its work in tests of its own."""
    tried = {command for command in TRIED if CODES.get(command, 0) != 2} - {*INSTANT}
    assert tried | {*INSTANT} | {*SHOWN_ELSEWHERE} == {*names()}
    assert not tried & {*SHOWN_ELSEWHERE}
    for test in SHOWN_ELSEWHERE.values():
        path, _, name = test.partition("::")
        assert f"def {name}(" in (ROOT / path).read_text()


@pytest.mark.parametrize("command", sorted(names()))
def test_every_command_has_an_answer_with_a_schema(command):
    """Commands that come later must declare one, with a meaning for each class."""
    kinds = answer_of_command(command)
    for kind in [each for each in get_args(kinds) or [kinds] if each is not type(None)]:
        assert is_dataclass(kind)
        assert issubclass(kind, Answer)
        assert schema_of(kind)["description"].endswith(".")
    Draft202012Validator.check_schema(schema_of_command(command))


@pytest.mark.parametrize("command", [each if each in QUICK else tail(each) for each in TRIED])
def test_what_a_command_prints_is_of_its_schema(finished_run, tmp_path, command):
    places = {"run": finished_run.path, "out": tmp_path}
    arguments = [each.format(**places) if "{" in each else each for each in TRIED[command]]
    code = CODES.get(command, 0)
    reply, events = heard(command, *arguments, cwd=tmp_path, code=code)
    assert code == 2 or bool(events) is (command not in INSTANT)
    assert (reply["error"] is not None) is (code == 2)
    assert (reply["result"] is not None) is (code != 2)


def test_what_init_and_trust_answer_in_a_repository(tmp_path):
    (tmp_path / "net.py").write_text("import torch\nclass Net(torch.nn.Module):\n    def __init__(self, a): ...\n")
    reply, events = heard("init", "--data", "none", "--yes", cwd=tmp_path)
    written = reply["result"]
    assert written["is_written"]
    assert [each["what"] for each in events] == ["reading the repository"]
    assert {Path(each).name for each in written["files"]} == {"net.yaml", "schema.json"}
    refused = answered("trust", ".", cwd=tmp_path, code=2)["error"]
    digest = refused["message"].split()[-1]
    trusted = answered("trust", ".", "--yes", digest, cwd=tmp_path)["result"]
    assert trusted


def test_what_init_finds_is_answered_although_it_cannot_ask(tmp_path):
    nets = "".join(f"class {name}(torch.nn.Module): ...\n" for name in "AB")
    (tmp_path / "nets.py").write_text(f"import torch\n{nets}")
    found = answered("init", cwd=tmp_path, code=2)
    assert (found["error"]["key"], found["result"]["models"]) == ("--model", ["nets.py:A", "nets.py:B"])
    assert (found["result"]["experiment"], found["result"]["texts"]) == (None, {})
    drafted = answered("init", "--model", "nets.py:A", cwd=tmp_path, code=2)
    assert (drafted["error"]["key"], drafted["result"]["experiment"]) == ("--yes", "a")
    ((path, text),) = drafted["result"]["texts"].items()
    assert (Path(path).name, "_target_: nets.py:A" in text) == ("a.yaml", True)
    assert [each.name for each in tmp_path.iterdir()] == ["nets.py"]


def test_what_predict_answers(finished_run, tmp_path):
    PIL.Image.fromarray(np.full((8, 8), 99, np.uint8)).save(tmp_path / "digit.png")
    reply, events = heard("predict", str(finished_run.path), "digit.png", "--out", "found.csv", cwd=tmp_path)
    assert reply["result"]["files"] == 1
    assert [*dict.fromkeys(each["what"] for each in events)] == ["loading the model", "predicting"]
    assert (tmp_path / "found.csv").read_text().count("digit.png") == 1


@pytest.mark.needs("horovod")
def test_what_install_horovod_answers_where_it_is_installed(tmp_path):
    assert not answered("install-horovod", cwd=tmp_path)["result"]["was_built"]


def test_a_sweep_is_its_comparison(tmp_path):
    swept = ["-m", "optimizer.lr=0.1,0.2", *FAST, "hydra.sweep.dir=sweep"]
    result = answered("train", *swept, cwd=tmp_path)["result"]
    assert [job["values"] for job in result["jobs"]] == [{"optimizer.lr": "0.1"}, {"optimizer.lr": "0.2"}]
    assert all(job["measures"]["val_loss"] > 0 for job in result["jobs"])


def test_a_failed_run_has_a_result_and_an_error(tmp_path):
    config = [*NO_WIDTH, "model=custom", "model._target_=tests.commands.broken.Net", "hydra.run.dir=run"]
    reply = answered("train", *config, cwd=tmp_path, code=1)
    assert (reply["error"]["code"], reply["error"]["rank"]) == ("Raised", 0)
    assert "the net is broken" in reply["error"]["message"]
    assert reply["result"]["status"] == "failed"


# What is typed, and of its error the code, the key and the value; {run}: a finished run.
MISTAKES = [
    ("train trainer.epochs=0", "WrongValue", "trainer.epochs", 0),
    ("train trainer.tta=flop", "WrongValue", "trainer.tta", "flop"),
    ("train parallel=dpp", "UnknownName", "parallel", "dpp"),
    ("train trainer.epoch=1", "UnknownName", "trainer.epoch", None),
    ("train +trainer.foo=1", "UnknownName", "trainer.foo", 1),
    ("train experiment=nothing", "UnknownName", "experiment", "nothing"),
    ("train precision=tf32 trainer.device=cpu", "Unavailable", "precision", "tf32"),
    ("train data=imagefolder data.root=/nowhere", "ConfigurationError", "data.root", "/nowhere"),
    ("train a=[", "ConfigurationError", "a", None),
    ("train --nonsense", "UnknownName", "--nonsense", None),
    ("train --config-dir nowhere", "ConfigurationError", "--config-dir", "nowhere"),
    ("train -m optimizer.lr=0.1,fast", "WrongValue", "optimizer.lr", "fast"),
    ("resume nowhere", "ConfigurationError", None, None),
    ("resume torn", "ConfigurationError", None, None),
    ("show nowhere", "ConfigurationError", None, None),
    ("list nowhere", "ConfigurationError", None, None),
    ("list {run} status=lost", "WrongValue", "status", "lost"),
    ("list {run} --sort speed", "ConfigurationError", "--sort", "speed"),
    ("diff {run}", "ConfigurationError", "run", None),
    ("export {run} --format docx", "WrongValue", "--format", "docx"),
    ("evaluate {run} --weights worst", "WrongValue", "--weights", "worst"),
    ("reproduce {run} --steps few", "WrongValue", "--steps", "few"),
    ("doctor ddpp", "UnknownName", "doctor", "ddpp"),
    ("schema nothing", "ConfigurationError", "schema", "nothing"),
    ("estimate --device-memory much", "WrongValue", "--device-memory", "much"),
    ("parity parallel=ddp --steps 0", "WrongValue", "--steps", "0"),
    ("record --runs 1", "WrongValue", "--runs", 1),
    ("record trainer.epoch=1 --target val_acc1=1", "UnknownName", "trainer.epoch", None),
    ("record trainer.tta=flop --target val_acc1=1", "WrongValue", "trainer.tta", "flop"),
    ("resume {run} trainer.max_steps=3 trainer.tta=flop", "WrongValue", "trainer.tta", "flop"),
    ("judge trainer.epochs=1", "ConfigurationError", "--change", None),
    ("tune --over trainr.*", "WrongValue", "--over", "trainr.*"),
    ("explain --picture a.jpg", "ConfigurationError", "--picture", "a.jpg"),
    ("explain nowhere", "ConfigurationError", None, None),
    ("scale parallel=ddp --devices many --network 1gbe", "WrongValue", "--devices", "many"),
    ("scale parallel=ddp --devices 2 --network 1gbit", "UnknownName", "--network", "1gbit"),
    ("scale parallel=ddp --devices 3 --network 1gbe data.batch_size=8", "ConfigurationError", "data.batch_size", 8),
    ("trust {run}", "ConfigurationError", "--yes", None),
    ("init repository", "ConfigurationError", "--model", None),
]
TAIL = (
    *(
        "scale",
        "show",
        "list",
        "diff",
        "export",
        "reproduce",
        "doctor",
        "schema",
        "judge",
        "record",
        "resume {run}",
        "evaluate",
    ),
    *("estimate", "train trainer.tta", "train trainer.epoch=", "train +", "train --config-dir"),
)


@pytest.mark.parametrize(
    ("typed", "code", "key", "value"),
    [tail(*each) if each[0].startswith(TAIL) else each for each in MISTAKES],
    ids=[each[0] for each in MISTAKES],
)
def test_a_refusal_names_the_key_and_the_value(finished_run, tmp_path, typed, code, key, value):
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "run.yaml").write_text("trainer: {epochs: ")
    (tmp_path / "repository").mkdir()
    nets = "".join(f"class {name}(torch.nn.Module): ...\n" for name in "AB")
    (tmp_path / "repository" / "nets.py").write_text(f"import torch\n{nets}")
    error = answered(*typed.format(run=finished_run.path).split(), cwd=tmp_path, code=2)["error"]
    assert (error["code"], error["key"], error["value"]) == (code, key, value)
    assert error["allowed"] or "Allowed:" not in error["message"]


@pytest.mark.parametrize(
    ("arguments", "key", "value"),
    [
        (["model=torchvision", "model.name=resnet5", *NO_WIDTH], "model.name", "resnet5"),
        ([*FAST, "data.batch_size=5000"], "data.batch_size", 5000),
    ],
)
def test_what_ranks_refuse_names_the_key_and_the_value(tmp_path, arguments, key, value):
    """Both are found by the ranks, and sent to their parent."""
    error = answered("train", *arguments, "parallel=ddp", cwd=tmp_path, code=2)["error"]
    assert (error["code"], error["key"], error["value"]) == ("ConfigurationError", key, value)
    assert len(error["allowed"]) > 50 or "Allowed:" not in error["message"]


def test_a_wrong_command_is_an_object_too(tmp_path):
    done = execute(sys.executable, "-m", "manyheads.runner", "lits", "--json", cwd=tmp_path)
    error = json.loads(done.out)["error"]
    assert (done.code, error["code"], error["key"], error["value"]) == (2, "UnknownName", "command", "lits")
    assert {*error["allowed"]} == {*names()}


def test_what_ranks_print_goes_to_stderr(tmp_path):
    config = [
        *NO_WIDTH,
        "model=custom",
        "model._target_=tests.commands.broken.Talks",
        "parallel=ddp",
        "hydra.run.dir=run",
    ]
    done = execute(sys.executable, "-m", "manyheads.runner", "train", *config, "--json", cwd=tmp_path, cold=True)
    assert json.loads(done.out)["result"]["status"] == "completed"
    assert "the net talks" in done.err
    assert "written past Python" in done.err


def test_events_are_lines_of_json_on_stderr(tmp_path):
    config = [*FAST, "parallel=ddp", "hydra.run.dir=run"]
    command = [sys.executable, "-m", "manyheads.runner", "train", *config, "--progress", "json"]
    done = execute(*command, cwd=tmp_path)
    assert done.code == 0, done.err
    events = [json.loads(line) for line in done.err.splitlines() if line.startswith('{"event"')]
    assert [each["event"] for each in events if each["event"] != "progress"][:: len(events) - 1] == ["started", "ended"]
    assert [each["values"]["step"] for each in events if each["event"] == "row"] == [1, 2]
    assert {each["event"] for each in events} >= {"started", "row", "evaluated", "checkpoint", "ended"}
    assert events[-1]["status"] == "completed"
    assert all(each["folder"] == str(tmp_path / "run") for each in events)


def test_exit_codes_are_one_table():
    assert {int(code) for code in ExitCode} == {0, 1, 2, 3, 4, 5, 6, 130, 143}
    page = (ROOT / "docs" / "programs.md").read_text()
    assert all(f"| {int(code)} | {code.meaning} |" in page for code in ExitCode)
