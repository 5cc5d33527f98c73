"""The ledger of measured runs: a line for its question, and one for each start and each end of a run.

Each line has a digest over all lines before it. Only the parent writes them, and seals each with the user's key. A line
that is changed, removed or inserted later breaks the chain of digests from there on.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run import seal
from manyheads.runner.run.data_files import no_link, parse_json, read_bytes, read_text
from manyheads.runner.run.ledger import JUDGED
from manyheads.runner.run.run_folder import SWEEP_DIR, RunFolder

MOST_BYTES = 2**26
SEALED = "judgement"  # the purpose of the seals
# The purposes of runs.
FACTS, STEPS, EXACT, TRIAL, FLOOR, ROUND = "facts", "steps", "exact", "trial", "floor", "round"
BASE, CHANGE = "base", "change"
STARTED, COMPLETED, FAILED, INTERRUPTED = "started", "completed", "failed", "interrupted"
PURPOSES = (FACTS, STEPS, EXACT, TRIAL, FLOOR, ROUND)
STATES = (STARTED, COMPLETED, FAILED, INTERRUPTED)


@dataclass(frozen=True)
class RunRow:
    """One run.

    ``purpose``: one of PURPOSES. ``round``: counted from 0. ``place``: 0 for the first run of the round, 1 for the
    second. ``arm``: BASE, CHANGE, or the name of another configuration. ``folder``: relative to the ledger's.
    ``began``, ``ended``: seconds since 1970 by the parent's clock. ``signature``: a digest of its config without the
    seed. ``machine``: a digest of versions, devices and this project's code. ``code``: one of the user's own code, or
    the commit that base runs. ``findings``: what the run measured. ``reason``: why it failed.
    """

    number: int
    purpose: str
    round: int
    place: int
    arm: str
    seed: int
    folder: str
    began: float
    state: str = STARTED
    ended: float | None = None
    signature: str | None = None
    machine: str | None = None
    code: str | None = None
    findings: Mapping[str, Any] = field(default_factory=dict)
    reason: str | None = None

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> "RunRow":
        """The row in JSON that anyone may have written. Raises ConfigurationError if it is malformed."""
        try:
            row = cls(**content)
        except TypeError:
            raise ConfigurationError("a row cannot be read: it has other keys.") from None
        if not row._is_sound():
            raise ConfigurationError(f"row {row.number!r} cannot be read: a value in it has another type.")
        return row

    @property
    def duration(self) -> float:
        """Seconds from its start to its end; 0 if it has not ended."""
        return (self.ended or self.began) - self.began

    def _is_sound(self) -> bool:
        integers = (self.number, self.round, self.place, self.seed)
        texts = (self.folder, *(value or "" for value in (self.signature, self.machine, self.code, self.reason)))
        numbers = (self.began, self.ended or 0.0)
        return (
            all(type(value) is int for value in integers)
            and all(isinstance(value, str) for value in texts)
            and all(type(value) in (int, float) for value in numbers)
            and isinstance(self.findings, dict)
            and isinstance(self.purpose, str)
            and isinstance(self.arm, str)
            and self.state in STATES
        )


class RunLedger:
    """The file ``judgement.jsonl`` of a judgement or tuning."""

    def __init__(self, folder: Path):
        self.path = folder / JUDGED
        self._rows: list[RunRow] = []
        self._read: tuple[int, ...] = ()  # inode, size and time of the file when its rows were read

    def exists(self) -> bool:
        return self.path.exists()

    def create(self, question: Mapping[str, Any]) -> None:
        """Create the ledger, with its question."""
        self._append(question, before="")

    def write(self, row: RunRow) -> None:
        """Append a row, durably."""
        self._append(asdict(row), before=self.lines()[-1]["digest"])

    def lines(self) -> list[Mapping[str, Any]]:
        """All complete lines; the rest of one whose writer was killed is ignored.

        Raises ConfigurationError if a line cannot be read, the chain of digests is broken, or the user did not record
        all of them: they decide what is measured, and which folders are removed.
        """
        text = read_text(self.path, most=MOST_BYTES)
        try:
            lines = [parse_json(line) for line in text[: text.rfind("\n") + 1].splitlines()]
        except (ValueError, RecursionError) as error:
            raise ConfigurationError(f"{self.path} cannot be read: {error}.") from None
        if not lines or (reason := broken(lines)):
            raise ConfigurationError(f"{self.path} cannot be continued: {reason if lines else 'it is empty'}.")
        if not is_sealed(lines):
            raise ConfigurationError(
                f"{RunFolder(self.path.parent)} holds runs that you did not record. Remove it, or name another folder "
                f"with {SWEEP_DIR}<folder>."
            )
        return lines

    def question(self) -> Mapping[str, Any]:
        """The question, as JSON."""
        return self.lines()[0]["content"]

    def rows(self) -> list[RunRow]:
        """The latest row of each run, in the order in which they were started."""
        status = os.stat(self.path)
        now = (status.st_ino, status.st_size, status.st_mtime_ns)
        if now != self._read:  # rows are read many times per run
            self._rows, self._read = latest(self.lines()), now
        return [*self._rows]

    def _append(self, content: Mapping[str, Any], *, before: str) -> None:
        now = digest(content, before)
        line = json.dumps({"content": content, "digest": now, "seal": _sealed(now)}) + "\n"
        with open(self.path, "ab", opener=no_link) as file:
            self._cut(file.fileno())
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())

    def _cut(self, descriptor: int) -> None:
        """Remove an incomplete last line."""
        content = read_bytes(self.path, most=MOST_BYTES)
        if content and not content.endswith(b"\n"):
            os.ftruncate(descriptor, content.rfind(b"\n") + 1)


def digest(content: Mapping[str, Any], before: str) -> str:
    """The digest of a line. ``before``: that of the line before it, empty for the first."""
    return hashlib.sha256(f"{before}\n{json.dumps(content, sort_keys=True)}".encode()).hexdigest()


def is_sealed(lines: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the user recorded all lines: whether each has a seal over its digest by the user's key."""
    return broken(lines) is None and all(line.get("seal") == _sealed(line["digest"]) for line in lines)


def _sealed(digest: str) -> str | None:
    return seal.keyed(SEALED, digest, lasting=False)


def broken(lines: Iterable[Any]) -> str | None:
    """A sentence on where the chain of digests is broken; None if it is intact."""
    before = ""
    for number, line in enumerate(lines, 1):
        if not isinstance(line, dict) or not isinstance(line.get("content"), dict):
            return f"line {number} is not a line of a judgement"
        if line.get("digest") != (before := digest(line["content"], before)):
            return f"line {number} was changed, or a line before it is missing"
    return None


def why_change_failed(rows: Iterable[RunRow], purpose: str, change: str = CHANGE) -> str | None:
    """Why the change failed in a run with this purpose, in a sentence; None if it did not."""
    failed = (row for row in rows if (row.purpose, row.arm, row.state) == (purpose, change, FAILED))
    return next((f"the change fails where base does not: {row.reason}" for row in failed), None)


def latest(lines: Iterable[Mapping[str, Any]]) -> list[RunRow]:
    """The latest row of each run. One that never ended counts as interrupted.

    Raises ConfigurationError if a row is malformed.
    """
    rows: dict[int, RunRow] = {}
    for line in list(lines)[1:]:
        row = RunRow.of(line["content"])
        rows[row.number] = row
    return [replace(row, state=INTERRUPTED) if row.state == STARTED else row for row in rows.values()]
