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
from tests.conftest import FAST, ROOT, execute
from tests.tail import tail

# What each command is tried with; {run}: a finished run, {out}: an empty folder. Others are in tests of their own.
TRIED = {
    "train": [*FAST, "hydra.run.dir={out}/run"],
    "list": ["{run}"],
    "show": ["{run}"],
    "diff": ["{run}", "{run}"],
    "doctor": ["parallel=ddp"],
    "estimate": ["parallel=single,ddp", "launcher.nproc_per_node=2", "--device-memory", "1kB"],
    "schema": ["list"],
    "report": ["{run}", "--to", "{out}/report"],
    "resume": ["{run}"],
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
    "install-horovod": ["--nonsense"],
    "watch": ["{run}"],
    "init": ["{out}"],
    "judge": ["--check", "{out}/judgement.json"],
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
    done = execute(sys.executable, "-m", "manyheads.runner", command, *arguments, "--json", cwd=cwd, timeout=240)
    assert done.code == code, done.out + done.err
    reply = json.loads(done.out)
    assert [*validator(command).iter_errors(reply)] == []
    assert (reply["command"], reply["exit_code"]) == (command, code)
    return reply


def test_every_command_is_tried():
    assert {*TRIED} == {*names()}


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
    reply = answered(command, *arguments, cwd=tmp_path, code=code)
    assert (reply["error"] is not None) is (code == 2)
    assert (reply["result"] is not None) is (code != 2)


def test_what_init_and_trust_answer_in_a_repository(tmp_path):
    (tmp_path / "net.py").write_text("import torch\nclass Net(torch.nn.Module):\n    def __init__(self, a): ...\n")
    written = answered("init", "--data", "none", "--yes", cwd=tmp_path)["result"]
    assert written["is_written"]
    assert {Path(each).name for each in written["files"]} == {"net.yaml", "schema.json"}
    refused = answered("trust", ".", cwd=tmp_path, code=2)["error"]
    digest = refused["message"].split()[-1]
    trusted = answered("trust", ".", "--yes", digest, cwd=tmp_path)["result"]
    assert trusted


def test_what_predict_answers(finished_run, tmp_path):
    PIL.Image.fromarray(np.full((8, 8), 99, np.uint8)).save(tmp_path / "digit.png")
    found = answered("predict", str(finished_run.path), "digit.png", "--out", "found.csv", cwd=tmp_path)["result"]
    assert found
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


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["trainer.epochs=0"], {"code": "WrongValue", "key": "trainer.epochs", "value": 0}),
        (["trainer.tta=flop"], {"code": "WrongValue", "allowed": ["none", "flip", "flip_shift"]}),
        (["parallel=dpp"], {"code": "UnknownName", "key": "parallel", "value": "dpp"}),
        (["trainer.epoch=1"], {"code": "UnknownName", "key": "trainer.epoch"}),
        (["+trainer.foo=1"], {"code": "UnknownName", "key": "trainer.foo", "value": 1}),
        (["precision=tf32", "trainer.device=cpu"], {"code": "Unavailable"}),
        (["--nonsense"], {"code": "ConfigurationError"}),
        (["a=["], {"code": "ConfigurationError"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_refusal_names_key_value_and_what_is_allowed(tmp_path, arguments, expected):
    error = answered("train", *arguments, cwd=tmp_path, code=2)["error"]
    assert {key: error[key] for key in expected} == expected


def test_a_wrong_command_is_an_object_too(tmp_path):
    done = execute(sys.executable, "-m", "manyheads.runner", "lits", "--json", cwd=tmp_path)
    assert (done.code, json.loads(done.out)["error"]["code"]) == (2, "ConfigurationError")


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
    assert {int(code) for code in ExitCode} == {0, 1, 2, 3, 4, 130, 143}
    page = (ROOT / "docs" / "programs.md").read_text()
    assert all(f"| {int(code)} | {code.meaning} |" in page for code in ExitCode)
