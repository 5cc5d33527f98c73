"""What came of each check on one card: a line as it ends, and a table last."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

PASSED, FAILED, LEFT_OUT = "passed", "FAILED", "dropped out"
ROOT = Path(__file__).resolve().parents[3]


@dataclass
class Findings:
    """The outcomes so far, by check. ``code``: of the command, 1 if a check failed."""

    rows: list[tuple[str, str, str]] = field(default_factory=list)

    def note(self, check: str, outcome: str, remark: str = "") -> None:
        self.rows.append((check, outcome, remark))
        print(f"{time.strftime('%H:%M:%S')} {check}: {outcome} {remark}", flush=True)

    def judge(self, check: str, is_right: bool, remark: str = "") -> None:
        self.note(check, PASSED if is_right else FAILED, remark)

    def leave_out(self, check: str, reason: str) -> None:
        self.note(check, LEFT_OUT, reason)

    @property
    def code(self) -> int:
        return int(not self.rows or any(outcome == FAILED for _, outcome, _ in self.rows))

    def show(self, title: str) -> None:
        table = Table(title=title, title_justify="left")
        for column in ("check", "outcome", "measured, or why"):
            table.add_column(column, overflow="fold")
        for row in self.rows:
            table.add_row(*row)
        Console(width=120, markup=False, emoji=False).print(table)  # errors of libraries have brackets
        counts = {outcome: sum(row[1] == outcome for row in self.rows) for outcome in (PASSED, FAILED, LEFT_OUT)}
        print(", ".join(f"{count} {outcome}" for outcome, count in counts.items()), flush=True)


def execute(*command: str, log: Path, timeout: float) -> int:
    """The exit status of a command whose output goes to ``log``, 124 if it was ended after ``timeout`` seconds."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as file:
        process = subprocess.Popen(command, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            return process.wait(timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # ranks end with their parent
            process.wait()
            return 124


def train(*overrides: str) -> tuple[str, ...]:
    return sys.executable, str(ROOT / "run.py"), *overrides


def last_line(log: Path) -> str:
    """What a failed command said: its first line with an error, or else its last."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if "error:" in line.lower()]
    return (errors or lines[-1:] or ["no output"])[0][:200]
