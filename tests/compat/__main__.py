"""Make an environment for each torch and Python that is claimed, and run the suite's core in it. ``make compat``.

Environments stay below the folder that is given, so that a second run takes minutes only. Pythons are found by uv.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT

NEWEST = ("2.15.0", "0.29.2")
# Of Python, torch, torchvision.
CLAIMED = [("3.11", "2.6.0", "0.21.0"), *((python, *NEWEST) for python in ("3.11", "3.12", "3.13"))]
CORE = (
    *("tests/model", "tests/optimizer", "tests/precision", "tests/checkpoint", "tests/loop"),
    *("tests/data/test_loader.py", "tests/data/test_batches.py", "tests/parallel/test_strategies.py"),
    "tests/launchers/test_equal_results.py",
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.compat", description=__doc__)
    parser.add_argument(
        "--folder", type=Path, default=Path("/tmp/manyheads-compat"), help="where environments are kept"
    )
    parser.add_argument("--only", help="those whose name has this, such as 3.13 or torch-2.6")
    given = parser.parse_args()
    codes = {}
    for python, torch, vision in CLAIMED:
        name = f"python-{python}-torch-{torch}"
        if given.only is None or given.only in name:
            codes[name] = tested(prepared(given.folder / name, python, torch, vision))
    for name, code in codes.items():
        print(f"{name}: {'passed' if code == 0 else f'failed ({code})'}")
    sys.exit(any(codes.values()))


def prepared(folder: Path, python: str, torch: str, vision: str) -> Path:
    """An environment with this torch and what `make test` needs, in the newest versions that go with it."""
    uv = Path(sys.executable).with_name("uv")
    if not folder.exists():
        subprocess.run([uv, "venv", "--quiet", "--python", python, folder], check=True)
    versions = (f"torch=={torch}", f"torchvision=={vision}")
    command = [uv, "pip", "install", "--quiet", "--python", folder / "bin" / "python", "--editable", "."]
    subprocess.run([*command, "--group", "dev", *versions], cwd=ROOT, check=True)
    return folder


def tested(folder: Path) -> int:
    """The exit code of the suite's core."""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    command = [
        folder / "bin" / "python",
        "-m",
        "pytest",
        "-q",
        "-n",
        "2",
        "--dist",
        "loadfile",
        "-m",
        "not tail",
        *CORE,
    ]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    main()
