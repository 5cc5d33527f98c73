"""What tests need that not every machine has: ``@pytest.mark.needs("slurm")``, or ``require("slurm")`` in a fixture.

If it is missing, the test is skipped with a sentence that says how to get it. Tests that start processes or use the
fixture ``library`` also need what their parameters name, such as ``parallel=horovod``. A table after the tests says how
many each sentence cost.
"""

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

LIBRARIES = {  # with what pip is given for them
    "accelerate": "--group bench",
    "aiohttp": "mlflow",
    "bitsandbytes": "--group ci",
    "datasets": "--editable '.[hf]'",
    "flask": "mlflow",
    "lightning": "--group bench",
    "mcp": "--editable '.[mcp]'",
    "mlflow": "mlflow",
    "mnist1d": "--group ci",
    "moto": "--group ci",
    "obstore": "--editable '.[storage]'",
    "peft": "--group ci",
    "pyarrow": "--editable '.[parquet]'",
    "pytorch_optimizer": "--group ci",
    "skills_ref": "--group ci",
    "ray": "--editable '.[ray]'",
    "sqlalchemy": "mlflow",
    "timm": "--editable '.[timm]'",
    "torchft": "--editable '.[replicated]'",
    "torchmetrics": "--group ci",
    "trackio": "--editable '.[trackio]'",
    "transformers": "--editable '.[transformers]'",
    "twine": "--group ci",
    "uv": "--group dev",
    "wandb": "--editable '.[wandb]'",
    "webdataset": "--group dev",
    "zensical": "--group dev",
}
TOOLS = {  # programs that pip installs beside Python
    "hadolint": "--group ci",
    "zizmor": "--group ci",
}
PROGRAMS = {  # with Debian's packages
    "chromium": ("chromium chromedriver", "chromium chromium-driver"),
    "gcc": ("gcc", "gcc"),
    "mpirun": ("mpirun", "openmpi-bin libopenmpi-dev"),
    "slurm": ("slurmctld slurmd sbatch", "slurmctld slurmd slurm-client"),
}
ABILITIES = {  # with a command that needs them, and leaves nothing
    "mount": "unshare --mount mount -t tmpfs tmpfs /mnt",
    "create network namespaces": "unshare --mount --net ip link set lo up",
    "create user namespaces": "unshare --user --map-user=1000 true",
}
NAMED = {"horovod": "horovod", "horovodrun": "horovod", "mpirun": "mpi", "mpi": "mpi", "replicated": "torchft"}
REMEDY = "why, and what helps"
PARTLY = "partly"  # a property of a report: the sentence for what its test did without


@cache
def missing(name: str) -> str | None:
    """What is missing and how to get it, None if it is available. ``name``: of a table above, "horovod" or "mpi"."""
    if name in LIBRARIES:
        return None if find_spec(name) else f"{name} is not installed: pip install {LIBRARIES[name]}"
    if name in TOOLS:
        return None if tool(name) else f"{name} is not installed: pip install {TOOLS[name]}"
    if name in PROGRAMS:
        programs, packages = PROGRAMS[name]
        lacking = [program for program in programs.split() if shutil.which(program) is None]
        return f"{', '.join(lacking)} not on PATH: apt-get install {packages}" if lacking else None
    if name in ABILITIES:
        return None if _succeeds(ABILITIES[name]) else cannot(name)
    if find_spec("manyheads.runner.parallel.horovod_installation") is None:
        return "this tree has no parallel=horovod"
    from manyheads.runner.parallel import horovod_installation as horovod

    if reason := horovod.unavailable():
        return "Horovod is not installed: make horovod, which needs g++" if horovod.version() is None else reason
    if name == "mpi" and not horovod.has("mpi"):
        return "Horovod was built without MPI: apt-get install openmpi-bin libopenmpi-dev, then make horovod"
    return missing("mpirun") if name == "mpi" else None


def tool(name: str) -> str | None:
    """The path of a program that pip installed beside this Python, or that is on PATH."""
    return shutil.which(name, path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")


def cannot(ability: str) -> str:
    """The sentence for what neither a library nor a program brings."""
    return f"this user cannot {ability} here: run the tests as root, on a machine where root may"


def _succeeds(command: str) -> bool:
    try:
        return subprocess.run(command.split(), capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def require(*names: str) -> None:
    """Skip the test if one of these is missing."""
    for name in names:
        if reason := missing(name):
            pytest.skip(reason)


def needed(item: pytest.Item) -> Iterator[str]:
    """The names of what a test needs: of its marks, and of its parameters if those are options that it runs."""
    for mark in item.iter_markers("needs"):
        yield from mark.args
    runs_them = item.get_closest_marker("processes") or "library" in getattr(item, "fixturenames", ())
    if runs_them and hasattr(item, "callspec"):
        words = re.findall(r"\w+", " ".join(map(str, item.callspec.params.values())))
        yield from (NAMED[word] for word in words if word in NAMED)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip the test before its fixtures are set up."""
    require(*needed(item))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print how many tests each missing thing cost."""
    stats = terminalreporter.stats
    skipped = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in stats.get("skipped", ()))
    calls = [report for reports in stats.values() for report in reports if getattr(report, "when", "") == "call"]
    partly = Counter(text for report in calls for name, text in report.user_properties if name == PARTLY)
    if not skipped and not partly:
        return
    table = Table(title="Skipped on this machine", title_justify="left")
    for title in ("tests", "in part", REMEDY):
        table.add_column(title, justify="left" if title == REMEDY else "right", overflow="fold")
    for reason in sorted({*skipped, *partly}, key=lambda reason: (-skipped[reason], reason)):
        table.add_row(*(str(count[reason] or "") for count in (skipped, partly)), reason)
    text = StringIO()
    Console(file=text, width=terminalreporter._tw.fullwidth, markup=False).print(table)
    terminalreporter.write("\n" + text.getvalue())
