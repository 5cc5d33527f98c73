"""A session of many judgements that share one error rate over all changes that were ever judged in it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from manyheads.runner.answers.judge.claims import KEEP
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.data_files import no_link, parse_json, read_text
from manyheads.runner.run.files import in_turn, make_folder

WITHDRAWN = "withdrawn"  # in place of a verdict


@dataclass(frozen=True)
class JudgementSession:
    """The file ``path``, with a line for each judgement that is begun, and one for each verdict or withdrawal.

    ``is_rate``: alpha bounds the expected fraction of false keeps among all keeps; otherwise the probability of any
    wrong verdict.
    """

    path: Path
    is_rate: bool = False

    def ask(self, draw: str, change: str, alpha: float) -> tuple[int, float]:
        """Record a judgement before its first run; return its number n in the session, from 1, and its error rate.

        The rate is alpha / (n (n + 1)); these sum to alpha. With ``is_rate`` it is multiplied by the number of changes
        kept before, plus 1: e-LOND, Xu and Ramdas 2024, https://arxiv.org/abs/2311.06412, which holds however the
        judgements depend on each other.

        ``draw``: identifies the judgement. One that is continued keeps number and rate; one that is started over, with
        a new draw, counts as another; one that is abandoned still counts. Raises ConfigurationError if the file is not
        a session, or one of the other kind.
        """
        make_folder(self.path.resolve().parent)
        with in_turn(self.path):
            lines = self._lines()
            asked = _counted(lines)
            recorded = asked.get(draw)
            if recorded is None:
                number = len(asked) + 1
                kept = len({line["draw"] for line in lines if line.get("verdict") == KEEP}) if self.is_rate else 0
                error_rate = alpha * (kept + 1) / (number * (number + 1))
                recorded = {"number": number, "draw": draw, "change": change, "alpha": error_rate, "rate": self.is_rate}
                self._append(recorded)
        return recorded["number"], recorded["alpha"]

    def answer(self, draw: str, verdict: str) -> None:
        """Record the verdict of a judgement. Raises ConfigurationError as ``ask`` does."""
        with in_turn(self.path):
            if not any(line.get("verdict") == verdict for line in self._lines() if line["draw"] == draw):
                self._append({"draw": draw, "verdict": verdict})

    def withdraw(self, draw: str) -> None:
        """No longer count a judgement, of whose change nothing has been measured; its number is free again.

        That keeps the sum of all error rates below alpha: of those that still count, the k-th was asked while at least
        k - 1 others counted. Raises ConfigurationError as ``ask`` does.
        """
        with in_turn(self.path):
            if draw in _counted(self._lines()):
                self._append({"draw": draw, "verdict": WITHDRAWN})

    def _append(self, line: Mapping[str, Any]) -> None:
        with open(self.path, "a", opener=no_link) as file:
            file.write(json.dumps(line) + "\n")

    def _lines(self) -> list[Mapping[str, Any]]:
        try:
            lines: list[Mapping[str, Any]] = [parse_json(line) for line in read_text(self.path).splitlines()]
            sound = all(map(_is_sound, lines))
        except (ValueError, TypeError, KeyError, RecursionError):
            sound = False
        if not sound:
            raise ConfigurationError.at(
                "--session", self.path, " is not the file of a session. Name another."
            ) from None
        if any("alpha" in line and line["rate"] != self.is_rate for line in lines):
            bound = "the chance of any wrong verdict" if self.is_rate else "the rate of false keeps"
            raise ConfigurationError.at("--session", self.path, f" bounds {bound}. Name another, or ask as before.")
        return lines


def _counted(lines: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """The line of each judgement that counts, by its draw."""
    counted_lines: dict[str, Mapping[str, Any]] = {}
    for line in lines:
        if "alpha" in line:
            counted_lines[line["draw"]] = line
        elif line["verdict"] == WITHDRAWN:
            counted_lines.pop(line["draw"], None)
    return counted_lines


def _is_sound(line: Mapping[str, Any]) -> bool:
    """Whether the line is a judgement or a verdict. Raises TypeError or KeyError for some lines that are neither."""
    if not isinstance(line["draw"], str):
        return False
    if "alpha" not in line:
        return isinstance(line["verdict"], str)
    number, alpha = line["number"], line["alpha"]
    return type(number) is int and type(alpha) is float and 0 < alpha < 1 and isinstance(line["rate"], bool)
