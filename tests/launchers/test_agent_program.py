"""How torchrun starts ranks, what it says of them, and how rank 0's output arrives; only a pipe's ends are started."""

import os
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from manyheads.launchers import torchrun
from manyheads.launchers.agent_program import VARIABLE, relay_stdout
from manyheads.launchers.torchrun import Torchrun
from tests.launchers.agents import follows

TORCHRUN = """\
============================================================
manyheads.runner.loop.rank_main FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-01-31_12:00:00
  host      : vm
  rank      : 2 (local_rank: 2)
  exitcode  : 1 (pid: 4243)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-01-31_12:00:00
  host      : vm
  rank      : 1 (local_rank: 1)
  exitcode  : -9 (pid: 4242)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 4242
============================================================
"""


@pytest.mark.parametrize(("text", "codes"), [("", {}), (TORCHRUN, {1: -9, 2: 1})])
def test_failed_ranks_are_found_in_what_torchrun_says(text, codes):
    assert torchrun.exit_codes(text) == codes


def test_torchruns_command_line(job, tmp_path):
    command = torchrun.command(job(3), "/scratch")
    assert (follows(command, "--nproc-per-node"), follows(command, "--log-dir")) == (["3"], ["/scratch"])
    assert command[-3:] == ["-m", "manyheads.runner.loop.rank_main", str(tmp_path / "run")]
    assert follows(command, "--rdzv-conf") == ["store_type=file"]


def test_torchrun_gets_what_every_rank_gets(started, monkeypatch):
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    launcher = Torchrun(name="torchrun", nproc_per_node=2, threads_per_rank=1, stall_timeout=600)
    _, environment = started(launcher)
    assert (environment["OMP_NUM_THREADS"], environment["NCCL_DEBUG"]) == ("3", "INFO")


def write(path: str, *pieces: bytes) -> None:
    """As rank 0 does, with the pieces in so many writes."""
    descriptor = os.open(path, os.O_WRONLY | os.O_NOCTTY)
    for piece in pieces:
        view = memoryview(piece)
        while view:
            view = view[os.write(descriptor, view) :]
    os.close(descriptor)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "one line\n",
        "no end of line",
        "\x1b[2K\r50% \N{BOX DRAWINGS HEAVY HORIZONTAL} \N{GREEK SMALL LETTER ALPHA}\n",
        "".join(f"line {number}\n" for number in range(200_000)),
    ],
    ids=["nothing", "a line", "no newline", "control codes", "2 MB"],
)
def test_what_rank_0_writes_arrives_before_the_launcher_returns(capsys, text):
    with relay_stdout() as variables:
        write(variables[VARIABLE], text.encode())
    assert capsys.readouterr().out == text


def test_what_two_openings_write_arrives(capsys):
    """A launcher may try again."""
    with relay_stdout() as variables:
        write(variables[VARIABLE], b"first ")
        write(variables[VARIABLE], b"second")
    assert capsys.readouterr().out == "first second"


@pytest.mark.parametrize("shift", range(3))
def test_a_character_that_is_cut_between_two_reads_arrives_whole(capsys, shift):
    """A read takes 64 KB at most, which no character of three bytes divides."""
    text = "x" * shift + "\N{BOX DRAWINGS LIGHT HORIZONTAL}" * 100_000
    with relay_stdout() as variables:
        write(variables[VARIABLE], text.encode())
    assert capsys.readouterr().out == text


def test_the_pipe_is_gone_afterwards(capsys):
    before = threading.active_count()
    with suppress(ZeroDivisionError), relay_stdout() as variables:
        write(variables[VARIABLE], b"said before it failed")
        _ = 1 / 0
    assert capsys.readouterr().out == "said before it failed"
    assert not Path(variables[VARIABLE]).parent.exists()
    assert threading.active_count() == before


def test_a_terminal_is_named_itself(monkeypatch):
    master, slave = os.openpty()
    with os.fdopen(slave, "w") as terminal:
        monkeypatch.setattr(sys, "stdout", terminal)
        with relay_stdout() as variables:
            assert variables == {VARIABLE: os.ttyname(slave)}
            write(variables[VARIABLE], b"50%\r")
        assert os.read(master, 100) == b"50%\r"
    os.close(master)
