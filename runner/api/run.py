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
    """What a run left: its folder, how it ended, the metrics of its last evaluation, and the config that was frozen."""

    folder: Path
    status: str
    metrics: dict[str, Any]
    config: dict[str, Any]

    @classmethod
    def of(cls, folder: str | Path) -> "Result":
        """That of a run's folder. Raises ConfigurationError where there is no run, or it has not ended."""
        run = RunFolder(folder)
        config, result = run.read_config(), run.read_result()
        if result is None:
            raise ConfigurationError(f"{run} has not finished: it has no {run.result.name}.")
        return cls(run.path, str(result.get("status")), result.get("metrics") or {}, config)


def run(overrides: Sequence[str] = (), *, conf: str | Path | None = None) -> Result:
    """Train as ``manyheads train <overrides>`` does, in a process of its own whose output appears here.

    conf: a folder of configs of your own, as --config-dir; a trusted conf/ of the working directory counts anyway.

    Raises ConfigurationError for what is refused, RunFailed for a run that fails, with the error's text, and
    KeyboardInterrupt for one that was stopped by Ctrl-C or by a notebook's stop button.
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
    """The arguments as a command line. Raises ConfigurationError for what can be none."""
    if isinstance(overrides, str):
        raise ConfigurationError(f'{overrides!r} is a string. Allowed: a list of overrides, such as ["{overrides}"].')
    typed = (*map(str, overrides), *(() if conf is None else ("--config-dir", str(conf))))
    try:
        return CommandLine(typed)
    except SystemExit:  # the parser has said on stderr what it does not know
        shown = " ".join(typed)
        raise ConfigurationError(f"{shown}: no such arguments. Allowed: overrides and Hydra's flags.") from None
