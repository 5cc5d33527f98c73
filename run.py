"""``manyheads train`` in a checkout that need not be installed. `python run.py --help` shows what can be chosen."""

import os
import sys
from pathlib import Path

NAMES = str(Path(__file__).resolve().parent / ".names")
if __name__ == "__main__" and sys.path[0] != NAMES:  # this checkout's code and no other, in every child process too
    sys.path[: not sys.flags.safe_path] = [NAMES]  # in this file's folder's place, if that is there
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [NAMES, os.environ.get("PYTHONPATH")]))
    os.environ["PYTHONSAFEPATH"] = "1"  # nor what lies in the working directory, which somebody may have sent


from manyheads.runner.app import main

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))
