"""Predict ranks of this machine's CPUs from one and from two, run on them, and compare.

``python -m tests.benchmarks.scaling parallel=ddp data=digits trainer.device=cpu --batch device``
"""

import argparse
import sys

from manyheads.runner.answers.scale.targets import BATCH, OF_RUN
from manyheads.runner.respond import respond
from tests.benchmarks.scaling.validation import validate


def main() -> int:
    """Compare, print the answer, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("overrides", nargs="*", help="as for train; or the folder of a run, and changes to its config")
    parser.add_argument("--devices", metavar="N,N", default="2,3,4", help="numbers of ranks (2,3,4)")
    parser.add_argument("--batch", choices=BATCH, default=OF_RUN, help="as for scale")
    parser.add_argument("--json", action="store_true", help="print the answer, or the error, as JSON on stdout")
    asked = parser.parse_args()
    return respond(
        "scale", lambda: validate(asked.overrides, devices=asked.devices, batch=asked.batch), as_json=asked.json
    )


if __name__ == "__main__":
    sys.exit(main())
