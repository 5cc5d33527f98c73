"""``python -m runner tune``: the fastest way to compute a run's updates on this machine."""

import argparse
from dataclasses import fields

from manyheads.runner.answers.tune.answer import Tuned

HELP = "find the fastest way to train your model here: strategy, ranks, threads, loading, memory format, ..."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("overrides", nargs="*", help="as for train; hydra.sweep.dir=<folder> names the folder")
    parser.add_argument("--budget", default="10m", help="how long it may take: seconds, or 90s, 30m, 8h (10m)")
    parser.add_argument("--over", metavar="KEYS", default="", help="try only these keys: parallel,trainer.*")
    parser.add_argument("--fix", metavar="KEYS", default="", help="leave these keys alone: parallel,launcher.*")
    parser.add_argument(
        "--within",
        type=float,
        default=0.03,
        help="stop once the answer is at most this fraction behind the best of those measured to a decision (0.03)",
    )
    parser.add_argument(
        "--precision",
        choices=("asked", "any"),
        default="asked",
        help="any: try every configuration in other precisions too (asked: only the fastest, once)",
    )
    parser.add_argument(
        "--allow-changed-numerics",
        action="store_true",
        help="also try what changes updates on purpose, such as compressed gradients, as separate answers",
    )
    parser.add_argument("--config-dir", help="a folder of more options, as for train")


def run(arguments: argparse.Namespace) -> Tuned:
    """Tune. Raises ConfigurationError, RunFailed."""
    from manyheads.runner.answers.tune.tune import TuningTerms, tune

    terms = TuningTerms(**{field.name: getattr(arguments, field.name) for field in fields(TuningTerms)})
    return tune(arguments.overrides, terms, config_dir=arguments.config_dir)
