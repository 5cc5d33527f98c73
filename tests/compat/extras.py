"""Whether each extra can be installed on each Python, in the newest versions. Some two minutes; installs nothing."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.conftest import ROOT

EXTRAS = sorted(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])


def conflict(extra: str, python: str) -> str | None:
    """Why uv finds no versions for this extra, None if it finds them."""
    search = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    command = ["uv", "pip", "compile", "--quiet", "--extra", extra, "--python-version", python, "pyproject.toml"]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "PATH": search}, capture_output=True, text=True)
    return None if done.returncode == 0 else done.stderr.strip()


def table(pythons: tuple[str, ...]) -> tuple[list[str], bool]:
    """The rows of a table of extras and Pythons, and whether all can be installed."""
    rows, found = [f"| extra | {' | '.join(pythons)} |", "|---" * (len(pythons) + 1) + "|"], True
    for extra in EXTRAS:
        reasons = [conflict(extra, python) for python in pythons]
        rows.append(f"| {extra} | {' | '.join('cannot be installed' if one else 'ok' for one in reasons)} |")
        for reason in filter(None, reasons):
            print(reason, file=sys.stderr)
            found = False
    return rows, found
