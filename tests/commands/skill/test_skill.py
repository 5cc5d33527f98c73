"""The skill for agents, where they look for it."""

from pathlib import Path

import pytest

from manyheads.runner.app import main
from tests.conftest import ROOT

CLAUDE, AGENTS = (Path(folder) / "skills" / "manyheads" / "SKILL.md" for folder in (".claude", ".agents"))


@pytest.fixture
def skill(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return lambda *words: main(["skill", "install", *words])


def test_it_is_written_for_those_who_are_here(skill, capsys):
    assert skill() == 2
    assert "--for claude, or --for agents" in capsys.readouterr().err
    Path(".claude").mkdir()
    assert skill() == 0
    assert capsys.readouterr().out == f"wrote {CLAUDE}\n"
    assert not AGENTS.exists()
    assert skill("--for", "agents") == 0
    assert AGENTS.read_bytes() == CLAUDE.read_bytes()
    capsys.readouterr()
    assert skill() == 0
    assert capsys.readouterr().out == f"is up to date: {CLAUDE}\nis up to date: {AGENTS}\n"


def test_one_that_was_edited_is_not_lost(skill, capsys):
    assert skill("--for", "claude") == 0
    ours = CLAUDE.read_text()
    CLAUDE.write_text(ours + "Ask me first.\n")
    assert skill() == 2
    assert "--overwrite" in capsys.readouterr().err
    assert "Ask me first." in CLAUDE.read_text()
    assert skill("--overwrite") == 0
    assert CLAUDE.read_text() == ours


def test_it_says_all_by_itself(skill):
    """Its links lead to places within it, since the other pages are not installed."""
    assert skill("--for", "agents") == 0
    text = AGENTS.read_text()
    assert ".md)" not in text
    assert "](#judge-one-change)" in text
    assert len(text.splitlines()) == len((ROOT / "docs" / "SKILL.md").read_text().splitlines())


@pytest.mark.ci
@pytest.mark.needs("skills_ref")
def test_the_public_validator_accepts_it(skill):
    from skills_ref import validate

    assert skill("--for", "agents") == 0
    assert validate(AGENTS.parent.absolute()) == []
    other = AGENTS.parent.rename("other")
    assert validate(other.absolute()) != []
