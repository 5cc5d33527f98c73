"""``python -m runner`` in a checkout, ``python <checkout>/runner`` and ``python -m manyheads.runner`` anywhere."""

import sys

if __name__ == "__main__" and not (sys.flags.safe_path and __package__):
    del sys.path[0]  # the working directory, which may be somebody else's folder; or this one, whose modules have names

import os
from pathlib import Path

if __name__ == "__main__":
    os.environ["PYTHONSAFEPATH"] = "1"  # in every child process too
if __package__ in ("runner", ""):  # in a checkout: its code and no other
    names = str(Path(__file__).resolve().parent.parent / ".names")
    sys.path.insert(0, names)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [names, os.environ.get("PYTHONPATH")]))

from manyheads.runner.app import leave, main

if __name__ == "__main__":
    leave(main())
