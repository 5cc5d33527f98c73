"""All commands behind one: each file of ``commands`` is one, with HELP, and either add_arguments and run, or take."""

import argparse
import importlib
import os
import pkgutil
import re
import sys
from types import ModuleType

from manyheads import __version__
from manyheads.runner import commands
from manyheads.runner.config.job_context import exit_code
from manyheads.runner.machine import invocation

COMPLETION = ("-sc", "--shell-completion")


def script() -> int:
    """The console script ``manyheads``."""
    invocation.note_script()
    os.environ["PYTHONSAFEPATH"] = "1"  # no child process imports what lies in the working directory
    return main()


def main() -> int:
    """Parse the command, do it, return the exit code."""
    found = sorted({module.name for module in pkgutil.iter_modules(commands.__path__)} - {*commands.SHARED})
    names = {name.replace("_", "-"): name for name in sorted(found, key=lambda name: name != "train")}
    words = sys.argv[1:]
    if words[:1] and words[0].partition("=")[0] in COMPLETION:
        return exit_code(lambda: _complete(words, names))
    parser = argparse.ArgumentParser(prog=invocation.command(), description="Train, sweep, resume, compare, repeat.")
    parser.add_argument("--version", action="version", version=f"manyheads {__version__}")
    subparsers = parser.add_subparsers(required=True, metavar="command")
    for name in words[:1] if names.keys() & words[:1] else names:  # one alone needs no other's libraries
        module = _module(names[name])
        if words[:1] == [name] and hasattr(module, "take"):  # it has a parser of its own
            return exit_code(lambda: module.take(words[1:]))  # noqa: B023
        command = subparsers.add_parser(name, help=module.HELP, allow_abbrev=False)
        if hasattr(module, "add_arguments"):
            module.add_arguments(command)
            command.set_defaults(run=module.run)
    arguments, rest = parser.parse_known_args()
    if rest and (not hasattr(arguments, "overrides") or any(one.startswith("-") for one in rest)):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if rest:  # overrides behind an option
        arguments.overrides += rest
    return exit_code(lambda: arguments.run(arguments))


def _complete(words: list[str], names: dict[str, str]) -> None:
    """What a shell's completion asks for, by Hydra's script: the commands, or train's groups, options and keys."""
    line = os.environ.get("COMP_LINE", "")
    if re.fullmatch(r"\s*\S+\s+\S*", line):
        print(" ".join(names))
    elif "query" not in " ".join(words) or re.match(r"\s*\S+\s+train\s", line):
        os.environ["COMP_LINE"] = re.sub(r"^(\s*\S+\s+)train\s+", r"\1", line)
        _module(names["train"]).take(words)


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"{commands.__name__}.{name}")
