"""Make an environment for each torch and Python that is claimed, and run the suite's core in it. ``make compat``.

Environments stay below the folder that is given: a second run takes minutes only. Pythons are pyenv's, or on PATH.
"""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.compat.stubs import make

NEWEST = ("2.15.0", "0.29.2")
# Of Python, torch, torchvision.
CLAIMED = [("3.11", "2.6.0", "0.21.0"), *((python, *NEWEST) for python in ("3.11", "3.12", "3.13"))]
CORE = (
    *("tests/model", "tests/optimizer", "tests/precision", "tests/checkpoint", "tests/loop"),
    *("tests/data/test_loader.py", "tests/data/test_batches.py", "tests/parallel/test_strategies.py"),
    "tests/launchers/test_equal_results.py",
)
# What torch imports itself; the libraries for GPUs are left out.
OF_TORCH = ("sympy", "networkx", "jinja2", "fsspec", "filelock", "typing-extensions", "triton")


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
    """An environment with everything but CUDA's libraries, for which there are stand-ins."""
    stubs, done = folder / "stubs", folder / "done"
    pip = [folder / "bin" / "python", "-m", "pip", "install", "--quiet"]
    if not done.exists():
        subprocess.run([interpreter(python), "-m", "venv", "--clear", folder], check=True)
        subprocess.run([*pip, "--no-deps", f"torch=={torch}", f"torchvision=={vision}"], check=True)
    ask = [folder / "bin" / "python", "-c", REQUIREMENTS, *OF_TORCH]
    others = subprocess.run(ask, capture_output=True, text=True, check=True).stdout.split("\n")
    subprocess.run([*pip, *filter(None, others)], check=True)  # also later, of what the project has come to need
    if done.exists():
        return folder
    (site,) = folder.glob("lib/python*/site-packages")
    stubs.mkdir()
    make([*site.glob("torch/lib/*.so"), *site.glob("torch/_C*.so"), *site.glob("torchvision/*.so")], stubs)
    done.touch()
    return folder


REQUIREMENTS = r"""
import re, sys, tomllib
from importlib.metadata import requires
project = tomllib.load(open("pyproject.toml", "rb"))["project"]
own = [*project["dependencies"], "pytest", "pytest-timeout", "hypothesis", "scikit-image", "setuptools", "safetensors"]
own = [each for each in own if not each.startswith(("torch", "manyheads"))]
torchs = [each for each in requires("torch") if re.match(r"[\w-]+", each)[0] in sys.argv[1:]]  # in its versions
print(*own, *torchs, sep="\n")
"""


def interpreter(version: str) -> str:
    """Of that version. Raises SystemExit where there is none."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [str(path) for path in root.glob(f"{version}.*/bin/python")] + [shutil.which(f"python{version}")]
    if not (there := next(filter(None, found), None)):
        raise SystemExit(f"error: there is no Python {version}, neither pyenv's nor on PATH.")
    return there


def tested(folder: Path) -> int:
    """The exit code of the suite's core."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(folder / "stubs")}
    command = [folder / "bin" / "python", "-m", "pytest", "-q", "-m", "not gpu and not tail", *CORE]
    return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    main()
