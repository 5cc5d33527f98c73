"""Whether a change has left every number unchanged: record a checkout's, and compare another one with them.

    git worktree add /tmp/before <commit>
    nice python -m tests.equality record /tmp/numbers --checkout /tmp/before
    nice python -m tests.equality compare /tmp/numbers

Bits depend on the processor and on torch, so that a record is of use on its own machine only, and is not committed.
Commands run in forks of a process that has imported torch (tests/zygote.py, of the checkout that is measured).
"""

import argparse
import csv
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests import zygote
from tests.equality import files
from tests.equality.matrix import Command, cases

# What differs from one time to the next, or tells where a run lies.
TIMING = re.compile(
    r"(.*_)?(seconds|time|started|memory|mb|fraction|share|speed|speedup|efficiency|utilization|mfu)(_.*)?"
    r"|samples_per_.*|files|folder|path|results|run|error|slow_ranks"
)
TABLES = ("steps.csv", "epochs.csv", "comparison.csv", "predictions.csv", "confusion.csv", "worst_samples.csv")
VARYING = "replicated"  # how many replicas make an update, and so its rounding, depends on when they join
DATE = re.compile(r"\d{4}-\d\d-\d\d/\d\d-\d\d-\d\d(-\d+)?")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.equality", description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=["record", "compare", "list"])
    parser.add_argument("folder", type=Path, nargs="?", default=Path("build/equality"), help="where numbers.json lies")
    parser.add_argument("--checkout", type=Path, default=zygote.ROOT, help="whose code is run")
    parser.add_argument("--only", default="", help="cases whose name matches this regular expression")
    parser.add_argument("--product", action="store_true", help="each setting under each launcher of a strategy")
    given = parser.parse_args()
    chosen = {name: commands for name, commands in cases(product_of_all=given.product) if re.search(given.only, name)}
    if given.what == "list":
        print(*chosen, sep="\n")
        return 0
    record = given.folder / "numbers.json"
    before = json.loads(record.read_text()) if record.exists() else {}
    for case in before.values():
        case["tables"] = without_timings(case["tables"])  # by the names of today
    outcomes = measured(chosen, given.checkout.resolve(), given.folder / "work")
    if given.what == "compare":
        return compared(before, outcomes)
    record.write_text(json.dumps(before | dict(outcomes), indent=1, sort_keys=True))
    return 0


def measured(chosen: dict[str, list[Command]], checkout: Path, folder: Path) -> Iterator[tuple[str, Any]]:
    """Each case with its outcome, whose exit codes are printed as it is measured."""
    os.environ["PYTHONPATH"] = os.pathsep.join([str(checkout / ".names"), str(checkout)])
    for name in ("STATE", "CONFIG", "CACHE"):
        os.environ[f"XDG_{name}_HOME"] = str((folder / name.lower()).resolve())
    os.environ |= {"HF_HOME": str((folder / "hf").resolve()), "COLUMNS": "200", "OMP_NUM_THREADS": "1"}
    for number, (name, commands) in enumerate(chosen.items(), start=1):
        began = time.monotonic()
        result = outcome(commands, checkout, (folder / re.sub(r"\W+", "-", name)).resolve())
        print(f"[{number}/{len(chosen)}] {name}: {codes(result)}, {time.monotonic() - began:.1f} s", flush=True)
        yield name, result


def outcome(commands: list[Command], checkout: Path, folder: Path) -> dict[str, Any]:
    """Exit codes, what commands report on stdout, and the tables of all runs in the folder, which is removed."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    files.write(folder)
    done = []
    for command in commands:
        line = (sys.executable, "-m", "manyheads", *command)
        try:
            code, out, err = zygote.run(line, cwd=folder, timeout=300, checkout=checkout)
        except subprocess.TimeoutExpired:
            code, out, err = -1, "", "timeout"
        done.append({"code": code} | ({"said": reported(command[0], out)} if code in (0, 3) else {"error": err[-600:]}))
    found = {DATE.sub("DATE", str(path.relative_to(folder))): path for path in sorted(folder.rglob("*"))}
    tables = {
        name: content(path) for name, path in found.items() if path.name in (*TABLES, "result.json", "study.json")
    }
    weights = [name for name in found if "/checkpoints/" in name and "/shard" not in name]
    shutil.rmtree(folder)
    return {"commands": done, "tables": tables, "checkpoints": weights}


def reported(command: str, out: str) -> Any:
    """An estimate in numbers; of a parity the verdict of each step."""
    if command == "estimate":
        return without_timings(json.loads(out))
    return [line for line in out.splitlines() if line.startswith(("equal", "different", "Cause"))]


def content(path: Path) -> Any:
    if path.suffix == ".json":
        return without_timings(json.loads(path.read_text()))
    with open(path, newline="") as file:
        return [without_timings(row) for row in csv.DictReader(file)]


def without_timings(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_timings(each) for key, each in value.items() if not TIMING.fullmatch(key)}
    return [without_timings(each) for each in value] if isinstance(value, list) else value


def compared(before: dict[str, Any], outcomes: Iterable[tuple[str, Any]]) -> int:
    """Print each place where a case differs from what was recorded before, as it is measured; 3 if there is one."""
    cases = places = 0
    for name, now in outcomes:
        pair = before.get(name), now
        lines = differences(name, *(map(codes, pair) if name.startswith(VARYING) else pair))
        cases, places = cases + 1, places + len(lines)
        print(*(f"  {line}\n" for line in lines), sep="", end="", flush=True)
    print(f"{cases} cases, {places} differences")
    return 3 if places else 0


def codes(outcome: dict[str, Any] | None) -> list[int]:
    return [each["code"] for each in (outcome or {"commands": []})["commands"]]


def differences(where: str, one: Any, other: Any) -> list[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        keys = [*one, *(key for key in other if key not in one)]
        return [line for key in keys for line in differences(f"{where} > {key}", one.get(key), other.get(key))]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return [line for number, pair in pairs for line in differences(f"{where} > {number}", *pair)]
    return [] if one == other else [f"{where}: {one!r} -> {other!r}"[:600]]


if __name__ == "__main__":
    sys.exit(main())
