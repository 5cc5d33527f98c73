"""The flags of ``manyheads judge`` for any command."""

import argparse

from manyheads.runner.answers.judge.answer import Judged
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.locate import load

ONLY = ("against", "result", "same", "timeout", "evaluator", "frozen", "share")  # with ``--command``


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of a judgement of commands."""
    group = parser.add_argument_group("any command, in place of overrides")
    group.add_argument("--command", metavar="CMD", help='what base runs: "python train.py --seed {seed}"')
    group.add_argument("--against", metavar="CMD", help="the changed command; or judge the same one with --code REV")
    group.add_argument("--result", metavar="FILE:KEY", help="read the numbers from this file: metrics.json:val.acc")
    about = "with --on seconds: a number that must agree in both arms, to the last bit or within TOL of its size"
    group.add_argument("--same", metavar="NAME[:TOL]", help=about)
    group.add_argument("--timeout", help="how long a run may take until one of base has ended; then ten times as long")
    about = "read the numbers from this command, which runs after each arm in base's files, on the files in {folder}"
    group.add_argument("--evaluator", metavar="CMD", help=about)
    group.add_argument("--frozen", metavar="PATHS", help="files that no arm may change: eval.py,data/")
    group.add_argument("--share", metavar="PATHS", help="ignored files that both arms read: .venv,data/")


def answer(arguments: argparse.Namespace) -> Judged | None:
    """The verdict on commands; None without ``--command``. Raises as ``judge_command``; refuses flags without it."""
    if arguments.command is None:
        if flag := next((name for name in ONLY if getattr(arguments, name)), None):
            raise ConfigurationError(f"--{flag} requires --command. Add it, or leave it out.", key=f"--{flag}")
        return None
    return load("manyheads.runner.answers.judge.command.judge_command.judge_command")(arguments)
