"""``python -m runner record``: run a recipe many times, and show whether and how fast it reaches a target."""

import argparse
from pathlib import Path

from manyheads.runner.answers.record.answer import RecordedRuns
from manyheads.runner.answers.record.evidence import CLOCKS
from manyheads.runner.answers.record.make_record import again, check, of_sweep, record
from manyheads.runner.errors import ConfigurationError, not_allowed

HELP = "run a recipe many times, and show whether it reaches a target and how fast, with a page as evidence"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "overrides",
        nargs="*",
        help="as for train; experiment=new,old alternates between both; or the folder of a sweep",
    )
    parser.add_argument("--runs", type=int, default=20, help="runs of each recipe, each with another seed (20)")
    parser.add_argument("--target", help="such as val_acc1=94, measured after the last epoch")
    parser.add_argument("--clock", choices=CLOCKS, default="training", help="which seconds count (default: training)")
    parser.add_argument("--config-dir", help="a folder of more options, as for train")
    parser.add_argument(
        "--again", metavar="record.json", type=Path, help="time the record's first recipe on this machine"
    )
    parser.add_argument(
        "--check", metavar="record.json", type=Path, help="check that the record's claims follow from its runs"
    )


def run(arguments: argparse.Namespace) -> RecordedRuns:
    """Run, gather or check a record. Raises ConfigurationError, RunFailed."""
    if arguments.check is not None:
        return check(arguments.check)
    if arguments.runs < 2:
        raise not_allowed("--runs", arguments.runs, "an integer of at least 2")
    if arguments.again is not None:
        return again(arguments.again, arguments.overrides, runs=arguments.runs)
    if not arguments.target:
        raise ConfigurationError("Name the target: --target val_acc1=94.", key="--target")
    chosen = {"target": arguments.target, "clock": arguments.clock}
    if len(arguments.overrides) == 1 and (folder := Path(arguments.overrides[0])).is_dir():
        return of_sweep(folder, **chosen)
    return record(arguments.overrides, runs=arguments.runs, conf=arguments.config_dir, **chosen)
