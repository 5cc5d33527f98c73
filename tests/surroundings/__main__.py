"""``python -m tests.surroundings``: every cell of the matrix; arguments are pytest's, such as ``-k horovodrun``."""

import sys
from pathlib import Path

import pytest

if __name__ == "__main__":
    sys.exit(pytest.main([str(Path(__file__).parent), "-v", "-m", "tail or not tail", *sys.argv[1:]]))
