"""Standard output that cannot be written: its disk is full, or nobody reads it any more."""

import json
import os
import subprocess
import sys

import pytest
from omegaconf import OmegaConf

from manyheads.runner.errors import Failure
from manyheads.runner.respond import respond
from tests.conftest import FAST
from tests.tail import tail

COMMAND = (sys.executable, "-m", "manyheads.runner")
SENTENCE = "error: standard output cannot be written: No space left on device\n"
MLP = ("train", "model=mlp", *(each for each in FAST if not each.startswith("model.")))
TRAIN = (*MLP, "hydra.run.dir=run")


def started(words, cwd, stdout):
    buffered = {**os.environ, "PYTHONUNBUFFERED": ""}  # or argparse ignores what happens to its help
    return subprocess.Popen([*COMMAND, *words], cwd=cwd, env=buffered, stdout=stdout, stderr=subprocess.PIPE, text=True)


def ended(process):
    _, errors = process.communicate(timeout=120)
    return process.returncode, errors


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("list", "."), id="text"),
        pytest.param(("list", ".", "--json"), id="json"),
        pytest.param((*TRAIN, "launcher=inline"), id="train"),
        pytest.param(("train", "--cfg", "job"), id="config"),
        pytest.param(("train", "--info", "all"), id="information", marks=pytest.mark.tail),
        pytest.param(("list", "--help"), id="help", marks=pytest.mark.tail),
        pytest.param(("schema", "list"), id="long", marks=pytest.mark.tail),
        pytest.param((*MLP, "seed=1,2", "hydra.sweep.dir=sweep", "-m"), id="sweep", marks=pytest.mark.tail),
    ],
)
def test_a_full_disk_is_one_sentence(tmp_path, words):
    with open("/dev/full", "w") as full:
        code, errors = ended(started(words, tmp_path, full))
    assert code == 1
    assert (
        errors.removeprefix("\n2 jobs: 1 pending, 1 running\nResume with: python -m runner resume sweep\n") == SENTENCE
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [("schema", "list"), tail(("list", ".", "--json")), tail(("train", "--help")), ("train", "--info", "all")]
)
def test_a_closed_pipe_is_no_news(tmp_path, words):
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as closed:
        assert ended(started(words, tmp_path, closed)) == (1, "")


@pytest.mark.slow
@pytest.mark.tail
@pytest.mark.processes
@pytest.mark.parametrize("launcher", ["inline", "spawn"])
def test_a_pipe_closed_while_a_run_trains_is_no_news_either(tmp_path, launcher):
    process = started((*TRAIN, f"launcher={launcher}"), tmp_path, subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("run ")
    process.stdout.close()
    process.stdout = None
    assert ended(process) == (1, "")
    error = json.loads((tmp_path / "run" / "result.json").read_text())["error"]
    assert (error["message"], error["traceback"]) == ("standard output cannot be written: Broken pipe", "")


@pytest.mark.parametrize("text", ["a line\n", 10**5 * "long"])
def test_a_rank_says_so_without_a_traceback(monkeypatch, text):
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        with pytest.raises(OSError, match="No space") as lost:
            print(text, flush=True)
        failure = Failure.of(lost.value, rank=0)
        monkeypatch.undo()
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), full.fileno())  # what is left is written when the file is closed
    assert failure.describe() == (
        "rank 0 failed first (exit code 1): OSError: standard output cannot be written: No space left on device"
    )
    assert failure.traceback == ""


def test_a_disk_that_is_full_where_a_library_writes_is_named(capsys):
    def write() -> None:
        with open("/dev/full", "w") as file:  # as Hydra writes config.yaml
            OmegaConf.save(OmegaConf.create({"a": 1}), file)

    assert respond("", write) == 1
    assert capsys.readouterr().err == "error: /dev/full: No space left on device\n"


def test_the_same_error_of_another_file_keeps_its_traceback(capsys):
    with pytest.raises(OSError, match="No space") as error, open("/dev/full", "wb", buffering=0) as full:
        full.write(b"x")
    assert "Traceback" in Failure.of(error.value).traceback
