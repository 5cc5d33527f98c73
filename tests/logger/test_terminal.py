"""What rank 0 shows on a terminal of any width, and elsewhere."""

import re
import sys

import pytest
from rich.cells import cell_len

from manyheads.runner.logger import terminal as display
from manyheads.runner.logger.terminal import Display, Terminal, fitting
from tests.in_process import small, train

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
WORDS = {"loss": "loss 1.2346", "metric": "acc 12.3%", "pace": "12.3 ms/step", "speed": "123k samples/s"}
EPOCH = ["epoch 1/90", "train 1.2345 45.68%", "val 0.9876 97.25%", "12,346 samples/s"]


@pytest.fixture
def terminal(monkeypatch):
    """Makes a Terminal that believes in a real one of that width; plain in none."""

    def make(width: int | None) -> Terminal:
        for name in ("FORCE_COLOR", "NO_COLOR", "TTY_INTERACTIVE", "JUPYTER_COLUMNS"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("TTY_COMPATIBLE", "1" if width else "0")
        monkeypatch.setenv("TERM", "xterm-256color")
        monkeypatch.setenv("COLUMNS", str(width or 80))
        monkeypatch.setenv("LINES", "25")
        monkeypatch.setattr(sys.stdout, "isatty", lambda: width is not None)
        return Terminal()

    return make


def show_a_run(shown: Terminal) -> None:
    shown.header({"run": "outputs/2026-01-01/12-00-00", "model": "small_cnn, 93,706 parameters"})
    shown.start(done=0, total=100_000)
    for step in range(1, 4):
        shown._shown = 0.0  # long ago
        shown.update(step)
        shown.interval(step, WORDS)
    shown.update(3)
    shown.epoch(EPOCH)
    shown.say("goes on from step 3")
    shown.stop()
    shown.stop()
    shown.table(
        "completed", {"best": "epoch 1: val loss 0.9876, accuracy 97.25% (top-5 100.00%)", "results": "x" * 150}
    )


def test_where_colors_are_forced_there_is_no_live_line(terminal, capsys, monkeypatch):
    shown = terminal(None)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("TTY_COMPATIBLE")
    show_a_run(type(shown)())
    output = capsys.readouterr().out
    assert "\x1b[1m" in output
    assert not re.search(r"\x1b\[[0-9;?]*[AKhl]", output)


@pytest.mark.parametrize("width", [40, 80, 120])
def test_a_live_line_never_breaks_and_nothing_is_too_long(terminal, capsys, width):
    show_a_run(terminal(width))
    output = capsys.readouterr().out
    assert "\x1b[" in output
    for line in re.split(r"[\r\n]", ESCAPES.sub("", output)):
        assert cell_len(line) <= width, line
    live = [line for line in re.split(r"[\r\n]", ESCAPES.sub("", output)) if "3/100000" in line]
    assert any("loss 1.2346" in line for line in live) or width == 40


def test_the_live_line_tells_loss_accuracy_speed_and_time_left(terminal, capsys):
    show_a_run(terminal(120))
    (*_, last) = [line for line in re.split(r"[\r\n]", ESCAPES.sub("", capsys.readouterr().out)) if "3/100000" in line]
    assert re.search(r"3/100000 .*loss 1\.2346  acc 12\.3%  12\.3 ms/step  123k samples/s.*\d+:\d\d left", last)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_live_line_says_which_epoch_and_when_it_evaluates(terminal, capsys, width):
    shown = terminal(width)
    shown.start(done=0, total=100)
    shown.phase("epoch 3/15")
    shown.interval(0, WORDS)
    shown.phase("epoch 3/15 evaluating")
    shown.stop()
    lines = [line for line in re.split(r"[\r\n]", ESCAPES.sub("", capsys.readouterr().out)) if "0/100" in line]
    assert any(re.match(r"epoch 3/15 (step )?0/100", line) for line in lines)
    assert any(line.startswith("epoch 3/15 evaluating") for line in lines)
    assert all(cell_len(line) <= width for line in lines)


def test_the_live_line_is_gone_at_the_end(terminal, capsys):
    shown = terminal(80)
    shown.start(done=5, total=10)
    shown.stop()
    output = capsys.readouterr().out
    assert output.count("\x1b[?25l") == output.count("\x1b[?25h") == 1  # the cursor is back
    assert output.rstrip().endswith("\x1b[2K")  # and the line is erased


def test_plain_lines_where_there_is_no_terminal(terminal, capsys):
    show_a_run(terminal(None))
    output = capsys.readouterr().out
    assert "\x1b" not in output
    assert "\r" not in output
    lines = output.splitlines()
    assert "run        outputs/2026-01-01/12-00-00" in [line.rstrip() for line in lines]
    assert any(each.startswith("step 2/100000  loss 1.2346  acc 12.3%  12.3 ms/step  123k samples/s") for each in lines)
    assert "epoch 1/90  train 1.2345 45.68%  val 0.9876 97.25%  12,346 samples/s" in lines
    assert "goes on from step 3" in lines


def test_plain_lines_come_now_and_then_only(terminal, capsys, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(display.time, "monotonic", lambda: now[0])
    shown = terminal(None)
    shown.start(done=100, total=1100)
    for step in range(101, 201):
        now[0] += 1
        shown.update(step)
        shown.interval(step, {**WORDS, "metric": ""})
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines] == [f"{step}/1100" for step in (121, 142, 163, 184)]
    assert lines[0].endswith("  123k samples/s  about 16:19 min left")


def test_a_narrow_line_omits_what_matters_least():
    assert fitting(WORDS, 80) == "loss 1.2346  acc 12.3%  12.3 ms/step  123k samples/s"
    assert fitting(WORDS, 45) == "loss 1.2346  12.3 ms/step  123k samples/s"
    assert fitting(WORDS, 30) == "loss 1.2346  123k samples/s"
    assert fitting(WORDS, 11) == "loss 1.2346"
    assert fitting(WORDS, 10) == fitting({}, 10) == ""


def test_a_metric_is_shown_until_the_next_one(terminal, capsys):
    shown = terminal(None)
    shown.start(done=0, total=9)
    for metric in ("acc 12.3%", ""):
        shown._shown = -1000.0
        shown.interval(1, {**WORDS, "metric": metric})
    assert capsys.readouterr().out.count("acc 12.3%") == 2


@pytest.mark.parametrize("width", [None, 120])
def test_names_with_brackets_and_colons_are_shown_as_they_are(terminal, capsys, width):
    shown = terminal(width)
    name = "runs/[red]a[/b]/:smile:/x"
    shown.header({"run": name})
    shown.say(name)
    shown.table("completed", {"results": name})
    assert ESCAPES.sub("", capsys.readouterr().out).count(name) == 3


def test_a_whole_run_on_a_terminal(terminal, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(display, "LIVE_SECONDS", 0.0)
    terminal(80)
    run = train(tmp_path, small())
    output = ESCAPES.sub("", capsys.readouterr().out)
    assert "40/40" in output
    assert run.folder.read_result()["weights_sha256"][:16] in output
    for line in re.split(r"[\r\n]", output):
        if str(tmp_path) not in line:
            assert cell_len(line) <= 80


def test_the_other_ranks_show_nothing(capsys):
    silent = Display()
    silent.header({})
    silent.start(done=0, total=1)
    silent.update(1)
    silent.interval(1, {})
    silent.epoch([])
    silent.say("hello")
    silent.table("", {})
    silent.stop()
    assert capsys.readouterr().out == ""
