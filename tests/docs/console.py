"""Console blocks of the documentation: typed as a reader would type them, and what they print compared.

Anything may stand where the documentation has ``...``. Decimal numbers may differ by a tenth, since another
processor rounds otherwise; times, rates and sizes in memory and of terminals by any amount.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from unittest import SkipTest

from sybil import Document, Example, Sybil
from sybil.parsers.markdown import CodeBlockParser, SkipParser

from tests.conftest import ROOT, execute
from tests.needs import missing

SHELL = re.compile(r"[|&;<>$`*?~]|^\s*\w+=\S* ")  # what only a shell can read
TOKEN = re.compile(
    r"(?P<any>\.\.\.|…)|(?P<date>20\d\d-\d\d-\d\d([/ ]\d\d[-:]\d\d[-:]\d\d)?)"
    r"|(?P<measured>[\d,.]+(?= (samples/s|MB|kB|GB|s|ms|us|CPU threads?)\b))"
    r"|(?P<number>-?\d[\d,]*\.\d+(e[+-]?\d+)?)|(?P<line>[─━┄-]{2,})|(?P<space>\s+)"
)
PATTERNS = {
    "any": r".*?",
    "date": r"20\d\d-\d\d-\d\d(?:[/ ]\d\d[-:]\d\d[-:]\d\d)?",
    "measured": r"[\d,.]+",
    "number": r"(-?\d[\d,]*\.\d+(?:e[+-]?\d+)?)",
    "line": r"[─━┄-]+",
    "space": r"\s+",
}


def commands(block: str) -> list[tuple[str, str]]:
    """The commands of a block, each with what it should print; a line that ends in a backslash goes on."""
    found = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    split = (re.match(r"((?:.*\\\n)*.*)\n?((?:.*\n?)*)", one) for one in found)
    return [(one[1].replace("\\\n", " "), one[2]) for one in split if one]


def difference(wanted: str, got: str) -> str | None:
    """What is wrong with the output of a command, None if it is as documented."""
    pattern, end, numbers = "", 0, []
    for token in TOKEN.finditer(wanted.strip()):
        kind = token.lastgroup or next(name for name in PATTERNS if token[name])
        pattern += re.escape(wanted.strip()[end : token.start()]) + PATTERNS[kind]
        numbers += [token[0]] if kind == "number" else []
        end = token.end()
    match = re.fullmatch(pattern + re.escape(wanted.strip()[end:]), got.strip(), re.DOTALL)
    if not match:
        return f"documented:\n{wanted}\nprinted:\n{got}"
    for ours, theirs in zip(numbers, match.groups(), strict=True):
        one, other = (float(text.replace(",", "")) for text in (ours, theirs))
        if abs(one - other) > max(0.1 * abs(one), 1e-9):
            return f"documented: {ours}, printed: {theirs}, in\n{got}"
    return None


PROGRESS = re.compile(r".*, after \d+ s(, \d+ s left)?\n")  # of work that takes longer here than there


@dataclass
class Console:
    """A reader's terminal in one folder."""

    folder: Path
    without: set[str] = field(default_factory=set)  # sentences for the libraries that blocks were skipped for

    def page(self, path: Path) -> None:
        """Evaluate the blocks of a page from top to bottom; they may use each other's files."""
        parsers = [CodeBlockParser("console", self.block), CodeBlockParser("python", self.python), SkipParser()]
        for example in _document(path, parsers, self.lacks).examples():
            with suppress(SkipTest):
                example.evaluate()

    def lacks(self, library: str) -> bool:
        """Whether blocks that need a library must be skipped."""
        self.without |= {missing(library)} - {None}
        return missing(library) is not None

    def block(self, example: Example) -> str | None:
        """Type the commands of a block."""
        for command, wanted in commands(example.parsed):
            printed = self.type(command, may_fail="error:" in wanted or '"error": {' in wanted)
            wrong = difference(wanted, printed) if wanted.strip() else None
            if wrong:
                return f"$ {command}\n{wrong}"
        return None

    def python(self, example: Example) -> None:
        """Write a file whose first line names it (``# net.py``), as a reader would save it."""
        name = re.match(r"# (\S+\.py)\b", example.parsed)
        if name:
            (self.folder / name[1]).write_text(example.parsed)

    def type(self, command: str, *, may_fail: bool = False) -> str:
        """What a command prints; it must succeed (or exit with 3: it differs) unless an error is documented."""
        words = shlex.split(command, comments=True)
        if words[:1] == ["manyheads"] and not SHELL.search(command.split(" #")[0]):
            done = execute(sys.executable, "-m", "manyheads", *words[1:], cwd=self.folder, timeout=600)
            code, printed = done.code, done.out + PROGRESS.sub("", done.err)
        else:
            path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
            environment = {**os.environ, "PATH": path}
            process = subprocess.run(
                ["bash", "-c", command], cwd=self.folder, env=environment, text=True, timeout=600,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )  # fmt: skip
            code, printed = process.returncode, process.stdout
        assert code in (0, 3) or may_fail, f"$ {command}\nexit code {code}\n{printed}"
        return printed


def skipped(path: Path) -> list[str]:
    """The commands of a page that are not run, because their block says so."""
    found: list[str] = []

    def run_elsewhere(example: Example) -> None:
        """Nothing to do."""

    blocks = [CodeBlockParser(language, run_elsewhere) for language in ("console", "python")]
    for example in _document(path, [*blocks, SkipParser()], missing).examples():
        try:
            example.evaluate()
        except SkipTest:
            found += [command for command, _ in commands(str(example.parsed))]
    return found


def pages() -> list[Path]:
    """README, also in Chinese, and every page of docs/."""
    return [ROOT / "README.md", ROOT / "README.zh.md", *sorted((ROOT / "docs").glob("*.md"))]


def _document(path: Path, parsers: list, lacks: Callable[[str], object]) -> Document:
    document = Sybil(parsers=parsers).parse(path)
    document.namespace["missing"] = lacks
    return document
