"""``manyheads.run``: one run from Python."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from manyheads.runner.api.child import call
from manyheads.runner.config.arguments import CommandLine, quoted
from manyheads.runner.config.new_folder import RUN_DIR, named_folder, new_folder
from manyheads.runner.run.errors import ConfigurationError
from manyheads.runner.run.failure import Failure
from manyheads.runner.run.run_folder import RunFolder


@dataclass(frozen=True)
class Result:
    """The result of a run: its folder, its status, the metrics of its last evaluation, and the frozen config."""

    folder: Path
    status: str
    metrics: dict[str, Any]
    config: dict[str, Any]

    @classmethod
    def of(cls, folder: str | Path) -> "Result":
        """The result of the run in a folder. Raises ConfigurationError if there is no run, or if it has not ended."""
        run = RunFolder(folder)
        config, result = run.read_config(), run.read_result()
        if result is None:
            raise ConfigurationError(f"{run} has not finished: it has no {run.result.name}.")
        return cls(run.path, str(result.get("status")), result.get("metrics") or {}, config)


def run(overrides: Sequence[str] = (), *, conf: str | Path | None = None) -> Result:
    """Train like ``manyheads train <overrides>``, in a separate process whose output appears here.

    overrides: as on the command line. conf: a folder with your own configs, like --config-dir; a trusted conf/ in the
    working directory is always included.

    Raises ConfigurationError if the run is refused, RunFailed with the error's text if it fails, and KeyboardInterrupt
    if it was stopped by Ctrl-C or by a notebook's stop button.
    """
    line = as_typed(overrides, conf)
    if line.flags.multirun:
        raise ConfigurationError("manyheads.run is for a single run. Use manyheads.sweep, without -m.")
    folder = RunFolder(new_folder(line.overrides))
    line = line if named_folder(line.overrides) else line.adding(f"{RUN_DIR}{quoted(folder.path)}")
    try:
        ended = call("train", *line.arguments)
    finally:
        with suppress(OSError):  # it holds a run, unless that was refused
            folder.path.rmdir()
    if ended.code:
        ended.check(Failure.from_json((folder.read_result() or {}).get("error")))
    return Result.of(folder.path)


def as_typed(overrides: Sequence[str], conf: str | Path | None) -> CommandLine:
    """The overrides as command line arguments. Raises ConfigurationError if they are not a list of overrides."""
    if isinstance(overrides, str):
        raise ConfigurationError(f'{overrides!r} is a string. Allowed: a list of overrides, such as ["{overrides}"].')
    typed = (*map(str, overrides), *(() if conf is None else ("--config-dir", str(conf))))
    try:
        return CommandLine(typed)
    except SystemExit:  # the parser has said on stderr what it does not know
        shown = " ".join(typed)
        raise ConfigurationError(f"{shown}: no such arguments. Allowed: overrides and Hydra's flags.") from None
