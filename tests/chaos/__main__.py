"""``python -m tests.chaos``: hurt commands at random for some minutes; exit code 1 if one did not recover."""

import argparse
import json
import random
import shutil
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import psutil

from manyheads.runner.run.ledger import Ledger
from tests.chaos.compare import differences, left_by
from tests.chaos.faults import Moment, acts, mended
from tests.chaos.kinds import KINDS, Kind, placed
from tests.chaos.place import Place

END_SECONDS = 300.0  # within which a command that was hurt ends, or recovers, on a busy machine
GONE_SECONDS = 45.0  # publishers may take 30
CODES = (0, 1, 130, 143, -2, -9, -15, 137)


class Wrong(Exception):
    """What a command did that it must not do."""


class Chaos:
    """``out``: where failed cases stay. All run in one place, since a run records where it is."""

    def __init__(self, out: Path, seed: int):
        self.out, self.seed, self.place = out, seed, out / "place"
        self.references: dict[str, tuple[dict[str, Any], float]] = {}

    def reference(self, kind: Kind) -> tuple[dict[str, Any], float]:
        """What the kind leaves undisturbed, and how long it takes."""
        if kind.name not in self.references:
            shutil.rmtree(self.place, ignore_errors=True)
            with placed(kind, self.place) as place:
                began = time.monotonic()
                self.finish(kind, place, place.disk / "run", [], kind.words(place.disk / "run", place))
                took = time.monotonic() - began
                found = left_by(place.disk / "run", place.tracker, exact=kind.is_exact)
                self.references[kind.name] = found, took
                if left := place.leftovers():
                    raise Wrong(f"undisturbed, it left {left}")
        return self.references[kind.name]

    def case(self, number: int, kinds: list[Kind]) -> dict[str, Any]:
        """Hurt one command until it is completed; says what happened."""
        chance = random.Random(f"{self.seed} {number}")
        kind = chance.choice(kinds)
        said: dict[str, Any] = {"seed": self.seed, "case": number, "kind": kind.name, "faults": [], "wrong": []}
        try:
            expected, length = self.reference(kind)
            shutil.rmtree(self.place, ignore_errors=True)
            with placed(kind, self.place) as place:
                try:
                    self.hurt(kind, place, chance, said, expected, length)
                except (Wrong, AssertionError) as error:
                    said["wrong"].append(str(error))
                if said["wrong"]:
                    kept = self.out / f"case_{number}"
                    shutil.copytree(self.place, kept, dirs_exist_ok=True, symlinks=True, ignore=special)
        except Exception:
            said["wrong"].append(traceback.format_exc())
        return said

    def hurt(
        self, kind: Kind, place: Place, chance: random.Random, said: dict[str, Any], expected: Any, length: float
    ) -> None:
        run, words = place.disk / "run", kind.words(place.disk / "run", place)
        for attempt in range(chance.choice([1, 1, 2, 3])):
            output = place.folder / f"output_{attempt}.txt"
            moment, act = Moment(chance, length=length, is_many=kind.is_many), chance.choice(acts(place, kind.where))
            process = place.start(words, output)
            with mended(place, run):
                if moment.wait(process, run):
                    parent = next((each for each in place.processes() if "python" in each.name()), None)
                    try:
                        done = act(chance, place, parent or psutil.Process(process.pid), run)
                    except (psutil.Error, IndexError):
                        done = "too late"
                else:
                    done = "too late"
                said["faults"].append(f"{moment}: {act.__name__}: {done}")
                code = self.wait(process, place, said["faults"])
            said["faults"][-1] += f" -> {code}: {last_line(output)}"
            is_refused = code == 2 and "you have no permission" in last_line(output)  # before anything starts
            if code not in CODES and not is_refused:
                raise Wrong(f"exit code {code}: {last_line(output)}")
            if has_begun(run):
                words = ["-m", "runner", "resume", str(run)]
            elif run.exists():  # nothing can be resumed yet, so it is started again, elsewhere
                run = place.disk / f"run{attempt}"
                words = kind.words(run, place)
        self.finish(kind, place, run, said["faults"], words)
        said_by = [*place.folder.glob("output_*"), *run.glob("*/console.log")]
        if any("only partly published" in each.read_text(errors="replace") for each in said_by):
            self.finish(kind, place, run, said["faults"], ["-m", "runner", "publish", str(run)])
        found = left_by(run, place.tracker, exact=kind.is_exact)
        said["wrong"] += differences(expected, found)
        if left := place.leftovers():
            said["wrong"].append(f"left in temporary folders: {left}")

    def finish(self, kind: Kind, place: Place, run: Path, faults: list[str], words: list[str]) -> None:
        """Run the command to its end, undisturbed."""
        output = place.folder / "output_last.txt"
        code = self.wait(place.start(words, output), place, faults)
        if code != 0:
            raise Wrong(f"exit code {code} of {' '.join(words[:4])}: {last_line(output)}")

    def wait(self, process: Any, place: Place, faults: list[str]) -> int:
        """The exit code of a command, once nothing of it is left."""
        try:
            code = process.wait(END_SECONDS)
        except Exception as error:
            stuck = [f"{each.pid} {' '.join(each.cmdline())[:100]}" for each in place.processes()]
            raise Wrong(f"it has not ended after {END_SECONDS:g} s: {stuck}") from error
        if left := place.gone(GONE_SECONDS):
            raise Wrong(f"it left processes: {[each.cmdline() for each in left]}")
        return code


def special(folder: str, names: list[str]) -> list[str]:
    """What cannot be copied: sockets and pipes."""
    paths = [Path(folder, name) for name in names]
    return [path.name for path in paths if not (path.is_symlink() or path.is_file() or path.is_dir())]


def has_begun(run: Path) -> bool:
    """Whether there is something to resume."""
    return (run / "run.yaml").exists() or Ledger(run).exists()


def last_line(output: Path) -> str:
    said = output.read_text(errors="replace").strip().splitlines() if output.exists() else []
    return said[-1][:300] if said else ""


def main() -> int:
    names = [kind.name for kind in KINDS]
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=20260131)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--case", type=int, help="repeat this case of the seed alone, with the same kinds")
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--kind", action="append", choices=names, help="only these; may be repeated")
    parser.add_argument("--out", type=Path, default=Path("build/chaos"), help="logs, and what failed cases left")
    arguments = parser.parse_args()
    kinds = []
    for kind in KINDS:
        if arguments.kind and kind.name not in arguments.kind:
            continue
        if (why := kind.missing()) is not None:
            print(f"{kind.name} is skipped: {why}", flush=True)
            continue
        kinds.append(kind)
    out = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    chaos, failed = Chaos(out, arguments.seed), 0
    end, number = time.monotonic() + 60 * arguments.minutes, arguments.first
    while time.monotonic() < end:
        began = time.monotonic()
        said = chaos.case(arguments.case if arguments.case is not None else number, kinds)
        said["seconds"] = round(time.monotonic() - began, 1)
        with open(out / "log.jsonl", "a") as file:
            file.write(json.dumps(said) + "\n")
        mark = "WRONG" if said["wrong"] else "ok"
        print(f"{said['seed']}/{said['case']} {said['kind']}: {mark}, {said['seconds']} s", flush=True)
        for line in (*said["faults"], *(f"WRONG: {each}" for each in said["wrong"])):
            print(f"    {line}", flush=True)
        failed += bool(said["wrong"])
        number += 1
        if arguments.case is not None:
            break
    print(f"{number - arguments.first} cases, {failed} of them wrong")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
