"""What happens to a command, and when."""

import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from tests.chaos.place import IS_ROOT, Place

LATEST = 45.0  # seconds; a moment that never comes


class Moment:
    """A random moment: so many seconds after the start, or after something has appeared in the run's folder."""

    OF_RUNS = (
        *(".hydra", "run.yaml", "provenance.json", "logs/heartbeat", "logs/rank_*.log", "steps.csv", "checkpoints"),
        *("checkpoints/*", "epochs.csv", "model.json", "result.json", "trackers/*.json"),
    )
    OF_SWEEPS = ("multirun.yaml", "ledger.jsonl", "comparison.csv", "optimization_results.yaml")

    def __init__(self, chance: random.Random, *, length: float, is_many: bool):
        self._seconds = chance.choice([chance.uniform(0, 0.3), chance.uniform(0, length), chance.uniform(0, length)])
        self._file = chance.choice([None, *self.OF_RUNS, *(self.OF_SWEEPS if is_many else ())])
        self._later = chance.choice([0.0, chance.uniform(0, 0.3), chance.uniform(0, 3.0)])
        self._times = chance.choice([1, 2, 4]) if is_many else 1  # how many such files, of a sweep's jobs

    def __str__(self) -> str:
        if self._file is None:
            return f"after {self._seconds:.3f} s"
        return f"{self._later:.3f} s after {self._file} no. {self._times}"

    def wait(self, process: subprocess.Popen, folder: Path) -> bool:
        """Return at the moment; whether the command still runs."""
        deadline = time.monotonic() + (self._seconds if self._file is None else LATEST)
        while process.poll() is None and time.monotonic() < deadline:
            if (
                self._file is not None
                and len([*folder.glob(self._file), *folder.glob(f"*/{self._file}")]) >= self._times
            ):
                time.sleep(self._later)
                break
            time.sleep(0.005)
        return process.poll() is None


Act = Callable[[random.Random, Place, psutil.Process, Path], str]


def kill_parent(_: random.Random, __: Place, parent: psutil.Process, ___: Path) -> str:
    parent.kill()
    return "the parent"


def kill_any(chance: random.Random, place: Place, _: psutil.Process, __: Path) -> str:
    victim = chance.choice(place.processes())
    name = _named(victim)
    victim.kill()
    return name


def suspend(chance: random.Random, place: Place, _: psutil.Process, __: Path) -> str:
    victim = chance.choice(place.processes())
    name, seconds = _named(victim), chance.uniform(0.5, 5.0)
    victim.suspend()
    time.sleep(seconds)
    with suppress(psutil.Error):
        victim.resume()
    return f"{name} for {seconds:.1f} s"


def interrupt(chance: random.Random, _: Place, parent: psutil.Process, __: Path) -> str:
    times, signum = chance.choice([1, 1, 2, 3]), chance.choice([signal.SIGINT, signal.SIGTERM])
    for _ in range(times):
        with suppress(psutil.Error):
            parent.send_signal(signum)
        time.sleep(chance.uniform(0, 2.0))
    return f"{times} x {signum.name}"


def fill(chance: random.Random, place: Place, _: psutil.Process, __: Path) -> str:
    left = chance.choice([0, 0, 4096, 65536])
    with suppress(OSError), open(place.disk / "filler", "wb", buffering=0) as file:
        while file.write(bytes(65536)) == 65536:
            pass
        while file.write(bytes(512)) == 512:
            pass
    with suppress(OSError), open(place.disk / "filler", "r+b") as file:
        file.truncate(max(0, (place.disk / "filler").stat().st_size - left))
    return f"but for {left} bytes"


def lock(_: random.Random, __: Place, ___: psutil.Process, folder: Path) -> str:
    for path in (folder, *folder.rglob("*")):
        with suppress(OSError):
            path.chmod(path.stat().st_mode & ~0o222)
    return "without permission to write"


def make_immutable(_: random.Random, __: Place, ___: psutil.Process, folder: Path) -> str:
    return "chattr +i" if _change_attributes("+i", folder) else "too late"


def unplug(chance: random.Random, place: Place, _: psutil.Process, __: Path) -> str:
    assert place.cluster is not None
    node, seconds = chance.choice([*place.cluster.nodes]), chance.choice([0.5, 3.0, 60.0])
    place.cluster.cut(node)
    time.sleep(min(seconds, 20.0))
    if seconds < 20:
        place.cluster.mend(node)
    return f"node {node} for {seconds:g} s"


def power_off(chance: random.Random, place: Place, _: psutil.Process, __: Path) -> str:
    assert place.cluster is not None
    node = chance.choice([*place.cluster.nodes])
    place.cluster.kill(node)
    return f"node {node}"


def lose_slurm_node(chance: random.Random, place: Place, _: psutil.Process, __: Path) -> str:
    assert place.slurm is not None
    node, seconds = chance.choice(["n1", "n2"]), chance.choice([0.0, 3.0, 15.0])
    place.slurm.kill_node(node)
    time.sleep(seconds)
    place.slurm.start_node(node)
    return f"{node} for {seconds:g} s"


def lose_controller(chance: random.Random, place: Place, _: psutil.Process, __: Path) -> str:
    assert place.slurm is not None
    seconds = chance.choice([1.0, 10.0])
    place.slurm.stop_controller()
    time.sleep(seconds)
    place.slurm.start_controller()
    return f"for {seconds:g} s"


def lose_ray_node(chance: random.Random, place: Place, _: psutil.Process, __: Path) -> str:
    from tests.launchers.ray_cluster.cluster import fill as fill_cluster
    from tests.launchers.ray_cluster.cluster import lose_a_node

    seconds = chance.choice([0.0, 5.0])
    lose_a_node(place.ray)
    time.sleep(seconds)
    fill_cluster(place.ray, nodes=2)
    return f"for {seconds:g} s"


def acts(place: Place, where: str) -> list[Act]:
    """What can be done to commands in this place."""
    found: list[Act] = [kill_parent, kill_any, kill_any, suspend, interrupt]
    if place.is_small and where == "here":
        found.append(fill)
    if where == "here" and IS_ROOT:
        found += [lock, make_immutable]
    if place.cluster is not None:
        found += [unplug, unplug, power_off]
    if place.slurm is not None:
        found += [lose_slurm_node, lose_controller]
    if place.ray is not None:
        found += [lose_ray_node, lose_ray_node]
    return found


@contextmanager
def mended(place: Place, folder: Path) -> Iterator[None]:
    """Afterwards the disk has room, the folder can be written, nothing is suspended and all links are up."""
    try:
        yield
    finally:
        (place.disk / "filler").unlink(missing_ok=True)
        if IS_ROOT and folder.exists():
            _change_attributes("-i", folder)
        for path in (folder, *folder.rglob("*")) if folder.exists() else ():
            with suppress(OSError):
                path.chmod(path.stat().st_mode | 0o200)
        for node in place.cluster.nodes if place.cluster else ():
            place.cluster.mend(node)


def _change_attributes(change: str, folder: Path) -> bool:
    """Of a folder and everything in it, some of which may be removed at the same time; whether it has them."""
    subprocess.run(["chattr", "-R", change, str(folder)], capture_output=True)
    return subprocess.run(["chattr", change, str(folder)], capture_output=True).returncode == 0


def _named(process: psutil.Process) -> str:
    words = process.cmdline()
    known = next((word for word in words if word.startswith("manyheads: ")), None)
    return known.rpartition(" ")[0] if known and "/" in known else " ".join(words[:4])[-90:]
