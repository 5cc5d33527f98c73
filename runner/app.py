"""The program ``manyheads``: finds the module of a command, parses its arguments and runs it.

Each module of ``commands`` is a command. It has HELP, and either add_arguments and run or, if it parses its arguments
itself, take. ``run`` and ``take`` return the command's answer, whose class their annotation names.
"""

import argparse
import gc
import os
import re
import sys
from collections.abc import Sequence
from typing import NoReturn

from manyheads import __version__
from manyheads.runner import commands
from manyheads.runner.errors import ConfigurationError, UnknownName
from manyheads.runner.machine import import_apart, invocation
from manyheads.runner.respond import respond
from manyheads.runner.run.answer import Answer
from manyheads.runner.wording import nearest, refused_arguments

COMPLETION = ("-sc", "--shell-completion")
# Variables of launchers that start ranks: launchers/foreign/conventions.py says what they mean.
OF_RANKS = frozenset(
    (
        *("RANK", "WORLD_SIZE", "HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK", "PMI_RANK"),
        *("SLURM_STEP_ID", "PET_NNODES"),
    )
)


class Parser(argparse.ArgumentParser):
    """A parser whose errors end the command like any other ConfigurationError."""

    def error(self, message: str) -> NoReturn:
        """Print the usage, and raise a ConfigurationError about ``message``."""
        self.print_usage(sys.stderr)
        raise refused_arguments(message)


def script() -> NoReturn:
    """The console script ``manyheads``."""
    invocation.note_script()
    os.environ["PYTHONSAFEPATH"] = "1"  # no child process imports from the working directory
    leave(main())


def leave(code: int) -> NoReturn:
    """End the process without a last search for garbage, which would take a tenth of a short command's time."""
    if "torch" not in sys.modules:  # its libraries complain about what they are left with
        gc.freeze()
    sys.exit(code)


def main(typed: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code. ``typed``: its arguments, by default those of this process."""
    _open_closed_streams()
    import_apart.install()
    words = list(sys.argv[1:] if typed is None else typed)
    as_json = "--json" in words
    if words[:1] and words[0].partition("=")[0] in COMPLETION:
        return respond("completion", lambda: _complete(words))
    name = next((word for word in words if word in commands.names()), "")
    run = _run if OF_RANKS.isdisjoint(os.environ) else _run_as_rank
    return respond(name, lambda: run(words), as_json=as_json)


def _run_as_rank(words: list[str]) -> Answer | None:
    from manyheads.runner.option.locate import load  # few processes have such variables

    return load("manyheads.launchers.foreign.entry.enter")(words, _run)


def _open_closed_streams() -> None:
    """Open the streams that the shell has closed, as with >&-, to nowhere: the next file would take their place."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(nowhere, True)
            setattr(sys, name, os.fdopen(nowhere, "r" if name == "stdin" else "w"))


def _run(words: list[str]) -> Answer | None:
    try:
        os.getcwd()
    except FileNotFoundError:
        raise ConfigurationError("the working directory was deleted. Change to one that exists.") from None
    common = _common()
    typed, words = common.parse_known_args(words)
    if typed.progress is not None:
        from manyheads.runner.run.progress import choose

        choose(typed.progress)
    parser = Parser(prog=invocation.command(), description="Train, sweep, resume, compare, repeat.")
    parser.add_argument("--version", action="version", version=f"manyheads {__version__}")
    subparsers = parser.add_subparsers(required=True, metavar="command")
    available = commands.names()
    if words and not words[0].startswith("-") and words[0] not in available:
        parser.print_usage(sys.stderr)
        raise _no_such_command(words[0], list(available))
    for name in words[:1] if available.keys() & words[:1] else available:  # a single command does not import the others
        module = commands.module_of(name)
        if words[:1] == [name] and hasattr(module, "take"):  # it parses its arguments itself
            return module.take(words[1:], wants_answer=typed.json)
        command = subparsers.add_parser(name, help=module.HELP, allow_abbrev=False, parents=[common])
        if hasattr(module, "add_arguments"):
            module.add_arguments(command)
            command.set_defaults(run=module.run)
    arguments, rest = parser.parse_known_args(words)
    if rest and (not hasattr(arguments, "overrides") or any(one.startswith("-") for one in rest)):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if rest:  # overrides after a flag
        arguments.overrides += rest
    arguments.json = typed.json
    return arguments.run(arguments)


INSTEAD = {"sweep": "train -m", "search": "train -m hydra/sweeper=search", "run": "train", "test": "evaluate"}


def _no_such_command(name: str, available: list[str]) -> UnknownName:
    hint = f" Use `{invocation.command(*INSTEAD[name].split())}`." if name in INSTEAD else nearest(name, available)
    message = f"{name}: there is no such command.{hint} Allowed: {', '.join(available)}."
    return UnknownName(message, key="command", value=name, allowed=available)


def _common() -> Parser:
    """The arguments that every command takes."""
    common = Parser(add_help=False, allow_abbrev=False)
    common.add_argument("--json", action="store_true", help="print the answer, or the error, as JSON on stdout")
    about = "json: print events as JSON lines on stderr, as they happen"
    common.add_argument("--progress", choices=("text", "json"), help=about)
    return common


def _complete(words: list[str]) -> None:
    """Print a shell's completions, for Hydra's script: the commands, or train's groups, options and keys."""
    line = os.environ.get("COMP_LINE", "")
    if re.fullmatch(r"\s*\S+\s+\S*", line):
        print(" ".join(commands.names()))
    elif "query" not in " ".join(words) or re.match(r"\s*\S+\s+train\s", line):
        os.environ["COMP_LINE"] = re.sub(r"^(\s*\S+\s+)train\s+", r"\1", line)
        commands.module_of("train").take(words)
