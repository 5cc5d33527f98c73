"""What the page on error rates says of commands, from the recorded judgements."""

import re

from tests.answers.judge.command import live_commands
from tests.conftest import ROOT


def test_the_page_shows_the_table_of_the_recorded_judgements(capsys):
    live_commands.main(["--table"])
    rows = re.findall(r"^\| `?([\w-]+)`?.*?\| (.+) \|$", capsys.readouterr().out, re.MULTILINE)
    page = (ROOT / "docs" / "judge-error-rates.md").read_text()
    for name, figures in rows:
        if name in live_commands.KINDS:
            assert f"| {figures} |" in page, name
