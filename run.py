"""``manyheads train`` in a checkout that is not installed. `python run.py --help` lists groups and options."""

import os
import sys
from pathlib import Path

NAMES = str(Path(__file__).resolve().parent / ".names")
if __name__ == "__main__" and sys.path[0] != NAMES:  # this checkout's code and no other, in every child process too
    sys.path[: not sys.flags.safe_path] = [NAMES]  # replaces this file's folder, which is first without safe_path
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [NAMES, os.environ.get("PYTHONPATH")]))
    os.environ["PYTHONSAFEPATH"] = "1"  # child processes must not import from the working directory: it may be foreign


from manyheads.runner.app import leave, main

if __name__ == "__main__":
    leave(main(["train", *sys.argv[1:]]))
