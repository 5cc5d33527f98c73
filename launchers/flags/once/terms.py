"""What was typed with ``--once``."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from manyheads.runner.config.command_line import CommandLine
from manyheads.runner.config.fresh_folder import named_folder
from manyheads.runner.config.lookup import CONF
from manyheads.runner.errors import ConfigurationError, not_allowed
from manyheads.runner.machine import invocation
from manyheads.runner.option.rules import DURATION, seconds
from manyheads.runner.records.find import OUTPUTS
from manyheads.runner.wording import refused_arguments

REFUSED = ("cfg", "info", "help", "hydra_help", "version", "config_path", "config_name")
UNSUITED = (  # options of a sweep, with their values and why they exclude --once
    ("hydra.launcher.dry_run", "true", "starts no job, so it does not show which of them equal runs would answer"),
    ("hydra.launcher.repeat_seed", "same", "repeats equal runs"),
)


@dataclass(frozen=True)
class Terms:
    """``line``: the command line without these flags; ``roots``: the folders whose runs count, with the lock's first.

    ``seconds``: the longest wait; None: no limit. ``accepts_failed``: whether a failed run counts as an answer.
    """

    line: CommandLine
    roots: tuple[Path, ...]
    seconds: float | None
    accepts_failed: bool

    def absolute(self) -> "Terms":
        """The same terms, with folders that mean the same in every working directory."""
        return replace(self, roots=tuple(root.absolute() for root in self.roots))


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise refused_arguments(message)


def terms_of(arguments: Sequence[str]) -> Terms:
    """The terms on a command line of ``train``. Raises ConfigurationError."""
    parser = _Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("--once", action="store_true")
    parser.add_argument("--wait")
    parser.add_argument("--among", action="append", default=[], type=Path)
    parser.add_argument("--accept-failed", action="store_true")
    typed, rest = parser.parse_known_args(arguments)
    line = CommandLine(tuple(rest), Path.cwd() if invocation.by_script() else CONF.parent)
    for name in REFUSED:
        if getattr(line.flags, name, None):
            flag = f"--{name.replace('_', '-')}"
            raise ConfigurationError(f"{flag}: --once is for running what is typed. Leave out one of them.")
    if line.flags.multirun:
        _refuse_without_effect(line)
    if typed.wait not in (None, "0") and seconds(typed.wait) is None:
        raise not_allowed("--wait", typed.wait, f"{DURATION.allowed}, or 0")
    for folder in typed.among:
        if not folder.is_dir():
            raise ConfigurationError.at("--among", folder, " is not a folder. Name one with runs in it.")
    roots = (OUTPUTS, *typed.among)
    _refuse_unseen(line, roots)
    return Terms(line, roots, None if typed.wait is None else seconds(typed.wait) or 0.0, typed.accept_failed)


def _refuse_without_effect(line: CommandLine) -> None:
    """Raises ConfigurationError for options of a sweep that exclude --once."""
    for key, value, why in UNSUITED:
        if f"{key}={value}" in line.overrides:
            raise ConfigurationError.at(key, value, f" {why}. Leave it out, or --once.")


def _refuse_unseen(line: CommandLine, roots: Sequence[Path]) -> None:
    """Raises ConfigurationError for a run whose folder the next command would not find."""
    key = "hydra.sweep.dir" if line.flags.multirun else "hydra.run.dir"
    folder = named_folder(line.overrides, f"{key}=")
    if folder is not None and not any(folder.resolve().is_relative_to(root.resolve()) for root in roots):
        raise ConfigurationError.at(
            key,
            folder,
            f" is not below {', '.join(map(str, roots))}, where --once looks for runs. Choose a folder there, or add "
            f"--among {folder.parent}.",
        )
