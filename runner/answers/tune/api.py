"""``manyheads.tune``: a tuning from Python."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from manyheads.runner.api import Term, as_flags, as_typed, call
from manyheads.runner.errors import ExitCode


@dataclass(frozen=True)
class Tuning:
    """The result of a tuning.

    ``overrides``: all overrides of the fastest configuration that computes the same numbers as yours. ``speedup``: how
    many times as fast it is. ``written``: the experiment file with these overrides, None if none was written, such as
    when yours is the fastest. ``answer``: everything that the command prints with --json.
    """

    overrides: list[str]
    speedup: float
    written: Path | None
    answer: Mapping[str, Any] = field(repr=False)


def tune(overrides: Sequence[str] = (), *, conf: str | Path | None = None, **terms: Term) -> Tuning:
    """Find the fastest way to train like ``manyheads tune <overrides>``, in a separate process.

    overrides: as on the command line. conf: a folder with your own configs, like --config-dir. terms: the command's
    flags, such as ``budget="1h"``, ``over="parallel,trainer.*"``.

    The same call again continues the same tuning. Raises ConfigurationError if it is refused, RunFailed if your own
    configuration fails, and KeyboardInterrupt if it was stopped.
    """
    ended = call("tune", *as_typed(overrides, conf).arguments, *as_flags(terms))
    if ended.code != ExitCode.DONE or not ended.result:
        raise ended.error()
    first, written = ended.result["choices"][0], ended.result["written"]
    return Tuning(first["overrides"], first["speedup"], None if written is None else Path(written), ended.result)
