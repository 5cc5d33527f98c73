"""Standard output that cannot be written: its disk is full, or nobody reads it any more."""

import json
import os
import subprocess
import sys

import pytest

from manyheads.runner.errors import Failure
from tests.conftest import FAST

COMMAND = (sys.executable, "-m", "manyheads.runner")
SENTENCE = "error: standard output cannot be written: No space left on device\n"
TRAIN = ("train", "model=mlp", *FAST[:2], *FAST[3:], "hydra.run.dir=run")


def started(words, cwd, stdout):
    return subprocess.Popen([*COMMAND, *words], cwd=cwd, stdout=stdout, stderr=subprocess.PIPE, text=True)


def ended(process):
    _, errors = process.communicate(timeout=120)
    return process.returncode, errors


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("list",),
        ("list", "--json"),
        ("list", "--help"),
        ("schema", "list"),
        (*TRAIN, "launcher=inline"),
        (*TRAIN[:-1], "launcher=inline", "seed=1,2", "-m", "hydra.sweep.dir=sweep"),
    ],
    ids=["text", "json", "help", "long", "train", "sweep"],
)
def test_a_full_disk_is_one_sentence(tmp_path, words):
    with open("/dev/full", "w") as full:
        assert ended(started(words, tmp_path, full)) == (1, SENTENCE)


@pytest.mark.slow
@pytest.mark.parametrize("words", [("list",), ("list", "--json"), ("schema", "list")])
def test_a_closed_pipe_is_no_news(tmp_path, words):
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as closed:
        assert ended(started(words, tmp_path, closed)) == (1, "")


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["inline", pytest.param("spawn", marks=[pytest.mark.tail, pytest.mark.processes])])
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
        full.detach()  # which would be flushed once more
    assert failure.describe() == (
        "rank 0 failed first (exit code 1): OSError: standard output cannot be written: No space left on device"
    )
    assert failure.traceback == ""


def test_the_same_error_of_another_file_keeps_its_traceback(capsys):
    with pytest.raises(OSError, match="No space") as error, open("/dev/full", "wb", buffering=0) as full:
        full.write(b"x")
    assert "Traceback" in Failure.of(error.value).traceback
