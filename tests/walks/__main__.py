"""How far one has to walk to follow a value through the source, and other measures of what there is to know.

    python -m tests.walks                                       # the table: now, and what is aimed at
    python -m tests.walks runner/loop/build.py:build:run        # every function that is handed this parameter

A value is followed by reading the source, never by running it. Counted as handed on is the value itself and each of its
sections (``config["trainer"]``, ``run.trainer``, ``config.get("data")``), under whatever name and type, also in its
written form (``run.written``) and with the keys of an option (``run.model.section``); no longer what lies in a section
(``config["trainer"]["epochs"]``) and what a function computes from it.

- **stay**: a parameter of a function that is handed the value or a section, directly or by one that was handed it; also
  a method that reads it from an attribute in which its object keeps it
- **room**: a folder in which there is a stay
- **climb**: a call by which it gets into a higher layer of import-linter's than the caller's

A method of an object whose class is not seen where it is called stands for all methods of our classes with that name
that take so many arguments, unless Python's own types have it too. The constructors of options are not counted:
``instantiate`` gives them the keys of their section, not the section.
"""

import subprocess
import sys
from pathlib import Path

from tests.walks.source import OURS, ROOT, Layers, Source
from tests.walks.walk import Walk

FOLLOWED = {
    "build": "runner/loop/build.py:build:run",
    "start": "launchers/experiment.py:start:config",
    "freeze": "runner/config/freeze.py:freeze:composed",
    "launch": "launchers/launch.py:_launch_here:accompanied.run",
    "rank": "runner/loop/rank_main.py:run_rank:run",
}
# Nothing gets worse: test_walks.py holds each measure at or below this. Write down what has improved.
RECORDED = {
    "build: stays": 47,
    "build: rooms": 13,
    "build: climbs": 1,
    "start: stays": 71,
    "start: rooms": 13,
    "start: climbs": 4,
    "freeze: stays": 68,
    "freeze: rooms": 13,
    "freeze: climbs": 4,
    "launch: stays": 4,
    "launch: rooms": 1,
    "launch: climbs": 0,
    "rank: stays": 53,
    "rank: rooms": 14,
    "rank: climbs": 1,
    "files from run.py to the first update": 16,
    "lines of these files": 1827,
    "lines with dict[str, Any]": 156,
    "files": 817,
    "rooms in runner/": 24,
    "our modules imported by --cfg job": 56,
}
AIMS = {
    "start: stays": 40,
    "start: climbs": 5,
    "rank: stays": 40,
    "rank: climbs": 5,
    "files from run.py to the first update": 16,
    "lines of these files": 2000,
    "lines with dict[str, Any]": 150,
    "files": 860,
    "rooms in runner/": 24,
    "our modules imported by --cfg job": 60,
}


def figures(source: Source, root: Path = ROOT) -> dict[str, int]:
    """Each measure of RECORDED as it is now. ``source``: what ``root`` holds."""
    layers = Layers(root)
    walks = {name: Walk(source, start) for name, start in FOLLOWED.items()}
    found = {}
    for name, walk in walks.items():
        found |= {f"{name}: stays": len(walk.stays), f"{name}: rooms": len(walk.rooms)}
        found[f"{name}: climbs"] = len(walk.climbs(layers))
    files = [path for folder in OURS for path in (root / folder).rglob("*.py")]
    lines = [line for path in files for line in path.read_text().splitlines()]
    opened = first_update(source)
    return found | {
        "files from run.py to the first update": len(opened),
        "lines of these files": sum(len((root / name).read_text().splitlines()) for name in opened),
        "lines with dict[str, Any]": sum("dict[str, Any]" in line for line in lines),
        "files": len(files),
        "rooms in runner/": sum(any(path.glob("*.py")) for path in (root / "runner").iterdir()),
        "our modules imported by --cfg job": imported_by_cfg_job(root),
    }


def first_update(source: Source) -> set[str]:
    """The files that a config passes from ``run.py`` to the first update."""
    return {"run.py"}.union(*(Walk(source, start).opened for start in FOLLOWED.values()))


def imported_by_cfg_job(root: Path) -> int:
    """How many modules of ours the parent has imported when it prints a config."""
    command = [sys.executable, "-X", "importtime", str(root / "run.py"), "--cfg", "job"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    names = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    return sum(name.startswith("manyheads.") for name in names)


def main() -> None:
    if len(sys.argv) > 1:
        walk = Walk(Source.read(ROOT), sys.argv[1])
        print(*sorted(f"{function}({parameter})" for function, parameter in walk.stays), "", sep="\n")
        print(*sorted(f"climbs: {here} -> {there}" for here, there in walk.climbs(Layers(ROOT))), sep="\n")
        return
    print(f"{'':40}{'now':>8}{'recorded':>10}{'aim':>6}")
    for name, count in figures(Source.read(ROOT)).items():
        print(f"{name:40}{count:8}{RECORDED.get(name, 0):10}{AIMS.get(name, ''):>6}")


if __name__ == "__main__":
    main()
