"""``python -m runner export``: a run's model as a file for other programs."""

import argparse
from pathlib import Path

from manyheads.runner.commands import A_RUN, add_weights
from manyheads.runner.errors import DIFFERS, ConfigurationError, complain, printable
from manyheads.runner.serve.formats import FORMATS, refuse_missing
from manyheads.runner.trust.trust_store import split_typed

HELP = "export a run's model for other programs, and check the file"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("run_folder", metavar="run", help=A_RUN)
    parser.add_argument("trust", nargs="*", help="trust=[my_package]: allow its code in configs from others")
    parser.add_argument("--format", required=True, choices=FORMATS)
    parser.add_argument("--out", help="the file; by default in the run's folder")
    add_weights(parser)


def run(arguments: argparse.Namespace) -> int:
    """Return 0 for a file that computes what the model does, 3 where it would not, and is not left."""
    packages, others = split_typed(arguments.trust)
    if others:
        raise ConfigurationError(f"{others[0]}: a model is exported unchanged. Allowed: trust=[my_package].")
    refuse_missing(arguments.format)
    from manyheads.runner.serve.rank.export import Differs, export
    from manyheads.runner.serve.rank.trained import load

    trained = load(arguments.run_folder, which=arguments.weights, trust=packages)
    out = Path(arguments.out) if arguments.out else trained.folder / f"model{FORMATS[arguments.format].suffix}"
    try:
        difference = export(trained, arguments.format, out)
    except Differs as error:
        complain(str(error))
        return DIFFERS
    print(f"{printable(out)}: the {trained.which} weights of {trained.folder}")
    print(f"loaded again, its outputs differ from the model's by at most {difference:.1e} of the largest one")
    return 0
