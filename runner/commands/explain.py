"""``manyheads explain``: what limits the speed of a run."""

import argparse

from manyheads.runner.answers.explain.answer import Explanation
from manyheads.runner.answers.measure.subject import measure, subject_of
from manyheads.runner.charts.picture_file import form_of, write_picture
from manyheads.runner.config.candidates import candidates

HELP = "measure what limits the speed of a run: loading data, computing, communication or the optimizer"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="run or overrides",
        help="as for train; or the folder of a run, and changes to its config",
    )
    parser.add_argument("--config-dir", help="a folder of more options, as for train")
    parser.add_argument("--picture", metavar="FILE", help="draw the times into a file that ends in .png or .svg")


def run(arguments: argparse.Namespace) -> Explanation:
    """Measure what limits a run. Raises ConfigurationError, and RunFailed if the run fails."""
    form = "" if arguments.picture is None else form_of(arguments.picture)
    subject = subject_of(arguments.overrides, config_dir=arguments.config_dir)
    tries = [*candidates(subject.run)]
    folder, result = measure(subject.run)
    explanation = Explanation.of(
        folder,
        result["floors"],
        result["time"],
        ranks=subject.run.launcher.ranks,
        candidates=tries,
        base=subject.overrides,
    )
    if arguments.picture is not None:
        write_picture(arguments.picture, explanation.picture(form=form))
    return explanation
