"""``python -m manyheads``: the console script, for who has it not on his path."""

import sys

if not sys.flags.safe_path:
    del sys.path[0]  # the working directory, which may be a folder that somebody sent

from manyheads.runner.app import script

if __name__ == "__main__":
    script()
