"""``python -m runner judge``: whether a change is better than base, or the difference is noise."""

import argparse
import pkgutil
from dataclasses import fields
from pathlib import Path

from manyheads.runner.answers import judge as package
from manyheads.runner.answers.judge.answer import CheckedJudgement, Judged
from manyheads.runner.answers.judge.log.audit_log import AuditedLog, audit_log
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.locate import load

HELP = "judge whether a change is faster or learns better, or the difference is noise: keep, discard or undecided"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("overrides", nargs="*", help="base, as for train; hydra.sweep.dir=<folder> names the folder")
    parser.add_argument("--change", metavar="OVERRIDES", help='the change, in one string: "trainer.channels_last=true"')
    parser.add_argument("--code", metavar="REV", help="judge the working tree of your repository against a revision")
    parser.add_argument("--least", type=float, help="smallest gain worth having (0.01 for speed, else 0)")
    parser.add_argument("--on", default="speed", help="what should improve: speed (default), or val_acc1,val_loss")
    parser.add_argument(
        "--allow-changed-numerics",
        action="store_true",
        help="with --on speed,val_acc1: time whole trainings of a change that computes something else",
    )
    test = parser.add_mutually_exclusive_group()
    test.add_argument("--test", choices=("symmetric", "mean"), help="by default symmetric for speed, else mean")
    test.add_argument(
        "--paired",
        dest="test",
        action="store_const",
        const="paired",
        help="both runs of a round get the same seed: fewer rounds if their numbers depend on it in the same way",
    )
    parser.add_argument(
        "--alpha",
        type=float,
        default=0.05,
        help="how often a change without any effect may be kept, or discarded as worse (0.05)",
    )
    parser.add_argument(
        "--session", metavar="FILE", type=Path, help="divide alpha among all changes judged with this file"
    )
    parser.add_argument("--rate", action="store_true", help="with --session: bound the fraction of false keeps instead")
    parser.add_argument(
        "--budget",
        default="10m",
        help="how long this call may take: seconds, or 90s, 30m, 8h (10m); the same call again continues",
    )
    parser.add_argument("--config-dir", help="a folder of more options, as for train")
    _add_files(parser)
    better = parser.add_mutually_exclusive_group()
    better.add_argument("--lower", action="store_true", default=None, help="lower values are better")
    better.add_argument("--higher", action="store_false", dest="lower", default=None, help="higher values are better")
    for name in _kinds():
        load(f"{name}.add_arguments")(parser)


def _add_files(parser: argparse.ArgumentParser) -> None:
    """Add the flags that name what was written before."""
    parser.add_argument(
        "--again", metavar="judgement.json", type=Path, help="judge the change of somebody's judgement on this machine"
    )
    parser.add_argument(
        "--check", metavar="judgement.json", type=Path, help="check that the claims follow from the rows; runs nothing"
    )
    parser.add_argument(
        "--log",
        metavar="FILE",
        type=Path,
        help="say how many kept changes in the log of a search noise alone explains; runs nothing. With --on <column>",
    )


def _kinds() -> list[str]:
    """The modules with the flags of what else can be judged than configs: ``flags`` in packages that have one."""
    packages = (module.name for module in pkgutil.iter_modules(package.__path__) if module.ispkg)
    names = [name for name in packages if (Path(package.__path__[0]) / name / "flags.py").is_file()]
    return [f"{package.__name__}.{name}.flags" for name in names]


def run(arguments: argparse.Namespace) -> Judged | CheckedJudgement | AuditedLog:
    """Judge a change, check a judgement, or audit a log. Raises ConfigurationError, RunFailed."""
    if arguments.log is not None:
        if arguments.overrides or arguments.change is not None or arguments.code is not None:
            raise ConfigurationError("--log reads a log and judges no change. Leave the others out.", key="--log")
        return audit_log(arguments.log, None if arguments.on == "speed" else arguments.on, lower=arguments.lower)
    from manyheads.runner.answers.judge.recorded import RecordedJudgement
    from manyheads.runner.answers.judge.terms import JudgementTerms

    if arguments.check is not None:
        return RecordedJudgement.of(arguments.check).check()
    for name in _kinds():
        other: Judged | None = load(f"{name}.answer")(arguments)
        if other is not None:
            return other
    if arguments.lower is not None:
        raise ConfigurationError(
            "--lower and --higher are for --command and --log: a metric of a config has a direction.",
            key="--lower" if arguments.lower else "--higher",
        )
    terms = JudgementTerms(**{field.name: getattr(arguments, field.name) for field in fields(JudgementTerms)})
    if arguments.again is not None:
        recorded = RecordedJudgement.of(arguments.again)
        return load(f"{recorded.question.asker}.again")(recorded, arguments.overrides, terms)
    from manyheads.runner.answers.judge.judge import judge

    chosen = {name: getattr(arguments, name) for name in ("change", "code", "config_dir")}
    return judge(arguments.overrides, terms, **chosen)
