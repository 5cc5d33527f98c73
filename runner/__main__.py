"""``python -m runner``: what can be done besides starting runs; each file of ``commands`` is one."""

import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    del sys.path[0]  # the working directory, which may be a folder that somebody sent

import argparse
import importlib
import os
import pkgutil
from pathlib import Path

if __name__ == "__main__":
    os.environ["PYTHONSAFEPATH"] = "1"  # in every child process too
if __package__ == "runner":  # in a checkout: its code and no other
    names = str(Path(__file__).resolve().parent.parent / ".names")
    sys.path.insert(0, names)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [names, os.environ.get("PYTHONPATH")]))

from manyheads.runner import commands
from manyheads.runner.config.command_line import exit_code


def main() -> int:
    """Parse the command, do it, return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m runner", description="What can be done besides starting runs.")
    names = {module.name.replace("_", "-"): module.name for module in pkgutil.iter_modules(commands.__path__)}
    subparsers = parser.add_subparsers(required=True, metavar="command")
    for name in sys.argv[1:2] if names.keys() & sys.argv[1:2] else names:  # one alone needs no other's libraries
        module = importlib.import_module(f"{commands.__name__}.{names[name]}")
        command = subparsers.add_parser(name, help=module.HELP, allow_abbrev=False)
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    arguments, rest = parser.parse_known_args()
    if rest and (not hasattr(arguments, "overrides") or any(one.startswith("-") for one in rest)):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if rest:  # overrides behind an option
        arguments.overrides += rest
    return exit_code(lambda: arguments.run(arguments))


if __name__ == "__main__":
    sys.exit(main())
