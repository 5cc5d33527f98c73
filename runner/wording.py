"""Text for the user: suggestions for mistyped names, lists, sizes and durations, and a question on the terminal."""

import difflib
import re
import sys
from collections.abc import Iterable, Sequence

from manyheads.runner.errors import ConfigurationError, UnknownName, WrongValue, filled, printable_text

LESS_ALIKE = 0.15  # a further suggestion's difflib ratio may be this much lower than the first one's


def first_line(error: Exception) -> str:
    """The first line of an error's message, without its period."""
    return str(error).strip().partition("\n")[0].rstrip(".")


def nearest(name: str, names: Iterable[str]) -> str:
    """A question that suggests names similar to a mistyped one; empty if there are none. names: the accepted ones."""
    return suggest(similar(name, names))


def similar(name: str, names: Iterable[str]) -> list[str]:
    """Up to three names similar to a mistyped one, the most similar first, without much less similar ones.

    If only the case differs, or one name abbreviates the other, such as lr and learning_rate, no others are suggested.
    """
    candidates = list(dict.fromkeys(names))
    same = [candidate for candidate in candidates if candidate.lower() == name.lower()]
    short = [
        candidate
        for candidate in candidates
        if _initials(name) == candidate.lower() or _initials(candidate) == name.lower()
    ]
    if same or short:
        return (same or short)[:3]
    begun = [candidate for candidate in candidates if len(name) >= 3 and candidate.startswith(name)]
    alike = dict.fromkeys([*difflib.get_close_matches(name, candidates, n=9, cutoff=0.55), *begun])
    likeness = {word: difflib.SequenceMatcher(None, word, name).ratio() for word in candidates if word in alike}
    least = max(likeness.values(), default=0) - LESS_ALIKE
    return sorted(
        (candidate for candidate in likeness if likeness[candidate] >= least),
        key=lambda candidate: -likeness[candidate],
    )[:3]


def _initials(name: str) -> str:
    """The initials of a name of several words, such as lr for learning_rate, learning-rate and LearningRate."""
    words = re.findall(r"[A-Z]+[a-z0-9]*|[a-z0-9]+", name)
    return "".join(word[0] for word in words).lower() if len(words) > 1 else ""


def suggest(names: list[str]) -> str:
    """A question that suggests these names; empty if there are none."""
    return f" Did you mean {' or '.join(names)}?" if names else ""


def loss_text(loss: float | None) -> str:
    """A loss with four decimals, or from 10,000 on, as of an unscaled regression, with five digits; empty for None."""
    if loss is None:
        return ""
    return f"{loss:.4f}" if abs(loss) < 10_000 else f"{loss:.4e}"


def listed(names: Sequence[str], most: int = 3) -> str:
    """``a, b, c and 4 more``: the first names, and how many others there are."""
    others = len(names) - most
    return ", ".join(names[:most]) + (f" and {others} more" if others > 0 else "")


def counted(count: int, one: str, many: str | None = None) -> str:
    """A number with its noun in the singular or plural."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def size_in_words(size: float) -> str:
    """A number of bytes in words, such as ``3.2 GB``."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size < 999.5 or unit == "TB":
            break
        size /= 1000
    return f"{size:.0f} {unit}" if unit == "B" or size >= 99.95 else f"{size:.1f} {unit}"


def duration(seconds: float | None) -> str:
    """A duration in words, such as ``12 s``, ``3:05 min`` or ``2:03:05 h``; empty for None."""
    if seconds is None:
        return ""
    if (rounded := round(seconds)) < 60:
        return f"{rounded} s"
    if rounded < 3600:
        return f"{rounded // 60}:{rounded % 60:02} min"
    return f"{rounded // 3600}:{rounded // 60 % 60:02}:{rounded % 60:02} h"


def refused_arguments(message: str) -> ConfigurationError:
    """The error for arguments that argparse refuses with this message."""
    if unknown := re.match(r"unrecognized arguments: (\S+)", message):
        return UnknownName(f"{message}.", key=unknown[1])
    if wrong := re.match(r"argument (\S+): invalid [\w ]+: '(.*?)'(?: \(choose from (.*)\))?$", message):
        allowed = [choice.strip("'") for choice in (wrong[3] or "").split(", ") if choice]
        return WrongValue(f"{message}.", key=wrong[1], value=wrong[2], allowed=allowed)
    named = re.match(r"(?:argument|the following arguments are required:) ([^\s,:]+)", message)
    return ConfigurationError(f"{message}.", key=named[1] if named else None)


def tell(text: str) -> None:
    """Print a sentence on stdout, on a terminal wrapped between words. Commands to be copied are printed unwrapped."""
    print(filled(printable_text(text), sys.stdout))


def is_confirmed(question: str) -> bool:
    """Ask a yes-or-no question; Ctrl-D is a no. Raises ConfigurationError if there is no terminal to ask on."""
    if not sys.stdin.isatty():
        raise ConfigurationError("there is no terminal to ask on. Read the above, then add --yes.", key="--yes")
    try:
        return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:  # Ctrl-D
        print()
        return False
