"""What errors tell programs: the key, its value and what is allowed, wherever their sentence names them."""

import ast
import fcntl
import os
import re
import struct
import termios
from collections.abc import Iterator

import pytest

from manyheads.runner.config.lookup import NAMED
from manyheads.runner.errors import ConfigurationError, Unavailable, WrongValue, complain, not_allowed
from manyheads.runner.option.declared import GROUPS
from manyheads.runner.wording import tell
from tests.conftest import ROOT

KINDS = {"ConfigurationError", "WrongValue", "UnknownName", "Unavailable"}
SECTIONS = "|".join((*GROUPS, *NAMED, "trainer", "checkpoint", "loss", "parameters", "hydra", "trust"))
# A sentence that begins with a flag, a group, a dotted key, or a variable with one; \0 stands for what is formatted.
SUBJECT = re.compile(rf"(--[\w-]+( \0|:| is| needs)|({SECTIONS})(\.[\w\0]+)*(=|: | is not set)|\0(\.\w+)*=)")


def sites() -> Iterator[tuple[str, str, bool]]:
    """Every error that is made with a sentence: where, the sentence, and whether it is given the key."""
    for folder in ("runner", "launchers"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in KINDS:
                    given = {keyword.arg for keyword in node.keywords}
                    sentence = _text(node.args[0]) if node.args else ""
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", sentence, bool(given & {"key", None})


def _text(node: ast.expr) -> str:
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "\0" for part in parts)


def test_a_sentence_that_begins_with_a_key_names_it_for_programs_too():
    found = [*sites()]
    assert len(found) > 200
    assert [f"{where}: {text}" for where, text, has_key in found if SUBJECT.match(text) and not has_key] == []


@pytest.mark.parametrize(
    "text", ["--out \0: there is", "trainer.epochs=\0 is", "data: x", "loss.\0 is not set", "\0=\0: x"]
)
def test_what_counts_as_such_a_sentence(text):
    assert SUBJECT.match(text)


@pytest.mark.parametrize(
    ("key", "value", "written"),
    [
        ("trainer.epochs", 3, "trainer.epochs=3"),
        ("trainer.clip_norm", 1.0, "trainer.clip_norm=1"),
        ("trainer.clip_norm", 0.123456789, "trainer.clip_norm=0.123456789"),
        ("trainer.swa_start", None, "trainer.swa_start=null"),
        ("optimizer.fused", True, "optimizer.fused=true"),
        ("--steps", 0, "--steps 0"),
    ],
)
def test_the_sentence_begins_with_what_was_typed(key, value, written):
    error = Unavailable.at(key, value, ": it is missing. Allowed: something else.")
    assert isinstance(error, Unavailable)
    assert str(error) == f"{written}: it is missing. Allowed: something else."
    assert (error.key, error.value, error.allowed) == (key, value, ("something else",))
    assert str(not_allowed(key, value, "a, b")) == f"{written} is not allowed. Allowed: a, b."


@pytest.mark.parametrize(("stream", "say", "begun"), [("stderr", complain, ""), ("stdout", tell, "error: ")])
def test_on_a_terminal_a_sentence_ends_its_lines_between_words(monkeypatch, stream, say, begun):
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
    with open(slave, "w") as terminal, open(master) as screen:
        monkeypatch.setattr(f"sys.{stream}", terminal)
        sentence = "trainer.epochs=zero is not allowed. Use `manyheads train x=1`, see"
        say(f"{begun}{sentence} /{'long/' * 10} or\n  - this-list")
        terminal.flush()
        shown = [screen.readline() for _ in range(5)]
    assert shown == [
        "error: trainer.epochs=zero is not\n",
        "allowed. Use `manyheads train x=1`, see\n",
        f"/{'long/' * 10}\n",
        "or\n",
        "  - this-list\n",
    ]


def test_values_that_are_listed_come_one_by_one():
    assert not_allowed("a", 1, "b, c", values=("b", "c")).allowed == ("b", "c")
    assert WrongValue("a is not allowed. Allowed: b, c.", allowed=["b", "c"]).allowed == ("b", "c")
    assert ConfigurationError("It failed.").allowed == ()
