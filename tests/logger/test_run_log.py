"""run.log has what was shown on the terminal, line by line, with times."""

import re

from manyheads.runner.logger.run_log import Stamped, log_display
from tests.in_process import small, train

STAMP = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\] ?")


def shown(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def test_a_run_s_log_has_all_that_was_shown(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    run = train(tmp_path, small("name=first"))
    lines = run.folder.log.read_text().splitlines()
    assert all(STAMP.match(line) for line in lines)
    found = [STAMP.sub("", line, count=1) for line in lines]
    assert shown("\n".join(found)) == shown(capsys.readouterr().out)
    assert [line for line in found if line.startswith("epoch 2/2")]
    assert "name       first" in found
    assert any("sha256" in line for line in found)


def test_lines_are_whole_and_appended(tmp_path):
    path = tmp_path / "run.log"
    path.write_text("before\n")
    file = Stamped(path)
    file.write("half a ")
    assert path.read_text() == "before\n"
    file.write("line\nand another\nrest")
    assert [STAMP.sub("", line) for line in path.read_text().splitlines()] == ["before", "half a line", "and another"]


def test_a_log_that_cannot_be_written_ends_nothing(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    for path in (tmp_path / "nowhere" / "run.log", tmp_path / "link", tmp_path):
        log_display(path).say("hello")
    assert not (tmp_path / "mine").exists()


def test_the_user_s_terminal_has_no_say(tmp_path, monkeypatch):
    for name, value in {"FORCE_COLOR": "1", "TTY_COMPATIBLE": "1", "COLUMNS": "20"}.items():
        monkeypatch.setenv(name, value)
    log_display(tmp_path / "run.log").table("completed", {"results": "x" * 50})
    text = (tmp_path / "run.log").read_text()
    assert "\x1b" not in text
    assert "x" * 50 in text
