"""Make an environment for each version that is claimed, and run a part of the suite in it. ``make compat``.

For each torch and Python that is what computes; for each Hydra what composes. Prints the table of docs/tested.md, and
one of the extras. uv finds the Pythons on PATH, or fetches them. Environments are kept, so that a second run takes
minutes only.
"""

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.compat import extras
from tests.conftest import ROOT

PYTHONS = ("3.11", "3.12", "3.13")
OLDEST = ("torch==2.6.0", "torchvision==0.21.0")
NEWEST: tuple[str, ...] = ()  # those of .ci/versions.txt
HYDRAS = {  # with the OmegaConf and the plugins that belong to it
    "1.3": ("hydra-core==1.3.8", "omegaconf==2.3.1", "hydra-joblib-launcher==1.2.0", "hydra-optuna-sweeper==1.3.0"),
    "1.4": tuple(f"hydra-{name}==1.4.0rc3" for name in ("core", "joblib-launcher", "optuna-sweeper"))
    + ("omegaconf==2.4.1rc1",),
}
CORE = (
    *("tests/model", "tests/optimizer", "tests/precision", "tests/checkpoint", "tests/loop"),
    *("tests/data/test_loader.py", "tests/data/test_batches.py", "tests/parallel/test_strategies.py"),
    "tests/launchers/test_equal_results.py",
)
COMPOSING = (
    *("tests/config", "tests/launchers/sweep", "tests/option", "tests/api", "tests/commands", "tests/run"),
    *("tests/trust/test_commands.py", "tests/trust/test_plain_content.py", "tests/trust/test_attacks_by_config.py"),
)
CLAIMED = {
    "oldest-3.11": ("3.11", OLDEST, CORE),
    **{f"newest-{python}": (python, NEWEST, CORE) for python in PYTHONS},
    **{f"hydra-{version}": ("3.11", packages, COMPOSING) for version, packages in HYDRAS.items()},
}
INSTALLED = """
import sys, hydra, omegaconf, torch, torchvision
print(f"| {torch.__version__}, torchvision {torchvision.__version__} | {hydra.__version__}, OmegaConf "
      f"{omegaconf.__version__} | {sys.version.split()[0]} |")
"""
SUMMARY = re.compile(r"^(?:=+ )?(\d+ [a-z].*) in [\d.]+s", re.MULTILINE)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.compat", description=__doc__)
    parser.add_argument(
        "--folder", type=Path, default=Path("/tmp/manyheads-compat"), help="where environments are kept"
    )
    parser.add_argument("--only", default="", help="those whose name has this, such as oldest, 3.13 or extras")
    given = parser.parse_args()
    results = {
        name: result(given.folder / name, python, versions, tests)
        for name, (python, versions, tests) in CLAIMED.items()
        if given.only in name
    }
    rows, resolve = extras.table(PYTHONS) if given.only in "extras" else ([], True)
    if results:
        print("| torch | Hydra | Python | the part of the suite |", "|---|---|---|---|", sep="\n")
        print(*(row for row, _ in results.values()), "", sep="\n")
    print(*rows, sep="\n")
    sys.exit(not (resolve and all(passed for _, passed in results.values())))


def result(folder: Path, python: str, versions: Sequence[str], tests: Sequence[str]) -> tuple[str, bool]:
    """The row of the table, and whether all tests passed."""
    if not installed(folder, python, versions):
        return f"| {' '.join(versions) or 'newest'} | | {python} | could not be installed |", False
    command = [folder / "bin" / "python", "-c", INSTALLED]
    row = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    output, code = tested(folder, tests)
    counts = SUMMARY.findall(output)
    return f"{row} {counts[-1] if counts else f'exit code {code}'} |", code == 0


def installed(folder: Path, python: str, versions: Sequence[str]) -> bool:
    """Whether there is now an environment with what `make test` needs."""
    search = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": search}
    commands = [["uv", "venv", "--quiet", "--python", python, folder]] if not folder.exists() else []
    if versions:  # with them, others than those of .ci/versions.txt
        install = ["uv", "pip", "install", "--quiet", "--compile-bytecode", "--python", folder / "bin" / "python"]
        commands.append([*install, "--editable", ".", "--group", "dev", *versions])
    else:
        commands.append([".ci/install", folder, "--group", "dev"])
    return all(subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode == 0 for command in commands)


def tested(folder: Path, tests: Sequence[str]) -> tuple[str, int]:
    """What these tests printed, which is shown meanwhile, and its exit code."""
    options = ("-q", "-n", "2", "--dist", "loadfile", "-m", "not tail")
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    command = [folder / "bin" / "python", "-m", "pytest", *options, *tests]
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        print(line, end="", flush=True)
        lines.append(line)
    return "".join(lines), process.wait()


if __name__ == "__main__":
    main()
