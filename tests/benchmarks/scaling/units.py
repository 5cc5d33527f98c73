"""A rank that measures like that of ``manyheads scale``, with its CPU quota."""

import sys

from manyheads.runner.answers.scale.rank import units
from tests.benchmarks.scaling.updates import with_quota

main = with_quota(units.work)

if __name__ == "__main__":
    main(sys.argv[1])
