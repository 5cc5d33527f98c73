"""A session of many judgements: the error rate is spent over all changes that were ever asked in it."""

import json
from pathlib import Path

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.data_files import no_link, parse_json, read_text
from manyheads.runner.run.files import in_turn, make_folder


def spent(path: Path, question: str, alpha: float) -> tuple[int, float]:
    """The number of a question in the session, from 1, and its error rate, alpha / (n (n + 1)): the sum is alpha.

    The question is recorded in the file ``path`` before anything is run, so one that is given up counts too; asked
    again, it keeps its number. Raises ConfigurationError.
    """
    make_folder(path.resolve().parent)
    with in_turn(path):
        asked = _asked(path)
        if question not in asked:
            with open(path, "a", opener=no_link) as file:
                file.write(json.dumps({"question": question}) + "\n")
            asked.append(question)
    number = asked.index(question) + 1
    return number, alpha / (number * (number + 1))


def _asked(path: Path) -> list[str]:
    try:
        return [parse_json(line)["question"] for line in read_text(path).splitlines()]
    except (ValueError, TypeError, KeyError):
        raise ConfigurationError(f"--session {path} is not the file of a session. Name another.") from None
