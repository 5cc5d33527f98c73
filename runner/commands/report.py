"""``python -m runner report``: compare the jobs of a sweep, or any runs."""

import argparse

from manyheads.runner.records.compared_runs import ComparedRuns
from manyheads.runner.report.write_report import report

HELP = "compare the jobs of a sweep, or any runs"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("folders", nargs="+", metavar="folder", help="the folder of a sweep, or folders of runs")
    parser.add_argument("--baseline", help="a job's number, or values such as parallel=dp,precision=fp32")
    parser.add_argument(
        "--watch", action="store_true", help="while jobs run, keep the files up to date; the page reloads"
    )
    parser.add_argument(
        "--to", help="folder for the files; by default the sweep's, or a new one in outputs/comparisons"
    )


def run(arguments: argparse.Namespace) -> ComparedRuns:
    """Compare, and write the comparison's files. Raises ConfigurationError."""
    return report(arguments.folders, baseline=arguments.baseline, to=arguments.to, is_watched=arguments.watch)
