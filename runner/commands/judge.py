"""``python -m runner judge``: whether a change is better than base, or the difference is noise."""

import argparse
from dataclasses import fields
from pathlib import Path

from manyheads.runner.answers.judge.answer import CheckedJudgement, Judged
from manyheads.runner.answers.judge.log.audit_log import AuditedLog, audit_log

HELP = "judge whether a change is faster or learns better, or the difference is noise: keep, discard or undecided"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("overrides", nargs="*", help="base, as for train; hydra.sweep.dir=<folder> names the folder")
    parser.add_argument("--change", metavar="OVERRIDES", help='the change, in one string: "trainer.channels_last=true"')
    parser.add_argument("--code", metavar="REV", help="judge the working tree of your repository against a revision")
    parser.add_argument("--least", type=float, help="smallest gain worth having (0.01 for speed, else 0)")
    parser.add_argument("--on", default="speed", help="what should improve: speed (default), or val_acc1,val_loss")
    about = "with --on speed,val_acc1: time whole trainings of a change that computes something else"
    parser.add_argument("--allow-changed-numerics", action="store_true", help=about)
    parser.add_argument("--test", choices=("symmetric", "mean"), help="by default symmetric for speed, else mean")
    about = "how often a change without any effect may be kept, or discarded as worse (0.05)"
    parser.add_argument("--alpha", type=float, default=0.05, help=about)
    parser.add_argument(
        "--session", metavar="FILE", type=Path, help="divide alpha among all changes judged with this file"
    )
    parser.add_argument("--rate", action="store_true", help="with --session: bound the fraction of false keeps instead")
    about = "how long this call may take: seconds, or 90s, 30m, 8h (10m); the same call again continues"
    parser.add_argument("--budget", default="10m", help=about)
    parser.add_argument("--config-dir", help="a folder of more options, as for train")
    parser.add_argument(
        "--again", metavar="judgement.json", type=Path, help="judge the change of somebody's judgement on this machine"
    )
    parser.add_argument(
        "--check", metavar="judgement.json", type=Path, help="check that the claims follow from the rows; runs nothing"
    )
    about = "say how many kept changes in the log of a search noise alone explains; runs nothing. With --on <column>"
    parser.add_argument("--log", metavar="FILE", type=Path, help=about)
    better = parser.add_mutually_exclusive_group()
    better.add_argument("--lower", action="store_true", default=None, help="with --log: lower values are better")
    better.add_argument("--higher", action="store_false", dest="lower", default=None, help="higher values are better")


def run(arguments: argparse.Namespace) -> Judged | CheckedJudgement | AuditedLog:
    """Judge a change, check a judgement, or audit a log. Raises ConfigurationError, RunFailed."""
    if arguments.log is not None:
        return audit_log(arguments.log, None if arguments.on == "speed" else arguments.on, lower=arguments.lower)
    from manyheads.runner.answers.judge.judge import again, check, judge
    from manyheads.runner.answers.judge.terms import JudgementTerms

    if arguments.check is not None:
        return check(arguments.check)
    terms = JudgementTerms(**{field.name: getattr(arguments, field.name) for field in fields(JudgementTerms)})
    if arguments.again is not None:
        return again(arguments.again, arguments.overrides, terms)
    chosen = {name: getattr(arguments, name) for name in ("change", "code", "config_dir")}
    return judge(arguments.overrides, terms, **chosen)
