"""Plant each fault in a copy of the project, and run the tests that should find it. ``make mutations``.

Exits with 1 if the tests pass in spite of a fault, or fail without one.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile

import psutil

from tests.mutations.fault import ROOT, Fault
from tests.mutations.faults import FAULTS

SUMMARY = re.compile(r"^\d+ (passed|failed).* in [\d.]+s", re.MULTILINE)
FAILED = 1  # pytest's exit code if tests failed; others are of tests that could not run


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("only", nargs="*", default=[""], help="parts of the names of the faults to plant; all if none")
    only = parser.parse_args().only
    chosen = [fault for fault in FAULTS if any(part in fault.name for part in only)]
    with TemporaryDirectory(prefix="mutations-") as folder:
        copy = copied(Path(folder) / "project")
        print(f"Without a fault: {len(chosen)} sets of tests", flush=True)
        code, report = tested(copy, [test for fault in chosen for test in fault.tests])
        if code:
            sys.exit(f"{report}\nerror: the tests fail without a fault.")
        survived = [fault.name for fault in chosen if not found(fault, copy)]
    if survived:
        sys.exit(f"error: {len(survived)} of {len(chosen)} faults were not found: {', '.join(survived)}.")
    print(f"All {len(chosen)} faults were found.")


def copied(folder: Path) -> Path:
    """A copy of the files that git tracks or would track, in this new folder."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0"):
        if name and os.path.lexists(ROOT / name):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
    return folder


def found(fault: Fault, copy: Path) -> bool:
    """Whether the fault's tests fail with it; prints which, or why they could not run."""
    with fault.planted(copy):
        started = time.monotonic()
        code, report = tested(copy, list(fault.tests))
    verdict = {0: "NOT FOUND", FAILED: "found"}.get(code, f"NOT FOUND: pytest ended with {code}")
    failed = [line for line in report.splitlines() if line.startswith("FAILED ")]
    print(f"{verdict:9}  {fault.name}  ({time.monotonic() - started:.0f} s)", *failed, sep="\n    ", flush=True)
    if code not in (0, FAILED):
        print(report)
    return code == FAILED and bool(failed)


def tested(copy: Path, tests: list[str]) -> tuple[int, str]:
    """The exit code and output of pytest in the copy, up to the first failure. Ends what a fault leaves running."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONSAFEPATH")}
    options = ["-qx", "-rf", "--tb=short", "-m", "not tail", f"--basetemp={copy}-tests", "-p", "no:cacheprovider"]
    with TemporaryFile("w+") as output:  # what a fault leaves running could keep a pipe open
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", *options, *dict.fromkeys(tests)],
            cwd=copy,
            env={**environment, "OMP_WAIT_POLICY": "passive", "COLUMNS": "120"},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        while process.poll() is None:
            output.seek(0)
            if SUMMARY.search(output.read()):  # it may wait for what is left
                end_all(copy)
            time.sleep(1)
        end_all(copy)
        output.seek(0)
        return process.returncode, output.read()


def end_all(copy: Path) -> None:
    """Kill the runs of the copy's tests, but not pytest."""
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or []
        if "pytest" not in command and any(str(copy) in part for part in command):
            process.send_signal(signal.SIGKILL)


if __name__ == "__main__":
    main()
