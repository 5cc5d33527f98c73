"""A run in each cell completes with the usual bits, or is refused in one sentence, after little work."""

import json
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import FAST, RUN, execute
from tests.launchers.conftest import by
from tests.needs import require
from tests.surroundings.pairs import covering
from tests.surroundings.place import Place
from tests.tail import tailed

pytestmark = pytest.mark.ci

AXES = {
    "launcher": ["inline", "spawn", "torchrun", "horovodrun", "mpirun", "ray"],
    "home": ["none", "unknown uid", "read-only", "full"],
    "TMPDIR": ["long", "odd", "missing", "read-only"],
    "directory": ["linked", "odd", "deleted"],
    "streams": ["usual", "closed", "stdout closed", "stderr closed", "full", "pipe that ends"],
    "names": ["usual", "host", "user"],
}
# What is refused, with the last line on stderr. Whoever ends a pipe is told nothing, as by other programs.
REFUSED = {
    frozenset({("directory", "deleted")}): "error: the working directory was deleted. Change to one that exists.",
    frozenset({("streams", "full")}): "error: standard output cannot be written: No space left on device",
    frozenset({("streams", "pipe that ends")}): "",
    frozenset({("launcher", "horovodrun"), ("names", "host")}): "error: .*no-such-host.invalid cannot be resolved here",
    # Ray ends the process of a user who may not enter the folder of whoever started it on this machine.
    **{
        frozenset({("launcher", "ray"), nameless}): "error: .*: the process that communicates with Ray has exited; see "
        for nameless in (("home", "none"), ("home", "unknown uid"), ("names", "user"))
    },
}
# A node starts no job of a user whose name it does not know; Slurm puts the job back into its queue.
OF_SLURM = {**AXES, "launcher": ["slurm"], "home": ["read-only", "full"], "names": ["usual", "host"]}
WITHOUT_SLURM = covering(AXES, REFUSED)
CELLS = WITHOUT_SLURM + covering(OF_SLURM, REFUSED, beside=WITHOUT_SLURM)
ORDINARY = [
    next(number for number, cell in enumerate(CELLS) if (launcher, value) == (cell["launcher"], cell[axis]))
    for launcher, axis, value in [
        ("inline", "home", "full"),
        ("spawn", "streams", "closed"),
        ("inline", "directory", "deleted"),
        ("inline", "streams", "full"),
        ("inline", "streams", "pipe that ends"),
        ("horovodrun", "names", "host"),
    ]
]
TYPED = (*FAST, "data=synthetic", "data.image_size=8", "data.train_samples=64")
REFUSED_SECONDS, SECONDS = 120.0, 280.0  # of waiting, also on a busy machine
REFUSED_WORK = 20.0  # processor seconds, which other programs on the machine hardly change


def name(cell: dict[str, str]) -> str:
    return ", ".join(cell.values())


def overrides(launcher: str) -> tuple[str, ...]:
    """For two ranks, by this launcher; inline has one."""
    if launcher == "inline":
        return ("launcher=inline",)
    return ("parallel=ddp", f"launcher={launcher}") if launcher in ("ray", "slurm") else by(launcher)


@pytest.fixture(scope="module")
def ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, ...]]:
    """Overrides for a rank on each of a cluster's two nodes."""
    from tests.launchers.ray_cluster.cluster import cluster

    require("ray")
    with cluster(nodes=2) as machines:
        yield (f"launcher.address={machines.address}", "launcher.nodes=2", "launcher.nproc_per_node=1")


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, ...]]:
    """Overrides for a cluster, which this process's environment names meanwhile."""
    from tests.launchers.slurm.cluster import started

    require("slurm")
    with started(tmp_path_factory.mktemp("slurm"), 1) as nodes, pytest.MonkeyPatch.context() as patch:
        for variable, value in nodes.environment.items():
            patch.setenv(variable, value)
        yield ()


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """The weights of a run in plain surroundings. Ray and Slurm start ranks that find those of spawn."""

    @cache
    def weights(launcher: str) -> str:
        folder = tmp_path_factory.mktemp(launcher)
        done = execute(sys.executable, str(RUN), *TYPED, *overrides(launcher), "hydra.run.dir=run", cwd=folder)
        assert done.code == 0, done.err
        return json.loads((folder / "run" / "result.json").read_text())["weights_sha256"]

    return lambda launcher: weights("spawn" if launcher in ("ray", "slurm") else launcher)


@pytest.mark.processes
@pytest.mark.slow
@pytest.mark.needs("mount", "create network namespaces")
@pytest.mark.parametrize("number", tailed(range(len(CELLS)), always=ORDINARY), ids=lambda number: name(CELLS[number]))
def test_a_run_completes_with_the_usual_bits_or_is_refused_in_one_sentence(
    tmp_path: Path, number: int, usual: Callable[[str], str], request: pytest.FixtureRequest
) -> None:
    cell = CELLS[number]
    launcher = cell["launcher"]
    require(*{"horovodrun": ("horovod",), "mpirun": ("mpi",)}.get(launcher, ()))
    more = request.getfixturevalue(launcher) if launcher in ("ray", "slurm") else ()
    refusals = [sentence for refused, sentence in REFUSED.items() if refused <= cell.items()]
    with Place(tmp_path, cell).prepared() as place:
        command = (sys.executable, str(RUN), *TYPED, *overrides(launcher), *more)
        done, work = place.run(*command, seconds=REFUSED_SECONDS if refusals else SECONDS)
        left = place.left()
    lines = [line for line in done.err.splitlines() if line and not line.startswith("warning: ")]
    assert not left
    assert "Traceback" not in done.err + done.out
    results = [*place.directory.glob("outputs/*/*/result.json")]
    if not refusals or (done.code == 0 and refusals == [""]):
        assert done.code == 0, done.err
        assert json.loads(results[0].read_text())["weights_sha256"] == usual(launcher)
        return
    assert done.code in (1, 2)
    assert len(lines) <= 1
    is_silent = cell["streams"] in ("closed", "stderr closed")
    assert any(re.match("" if is_silent else sentence, "".join(lines)) for sentence in refusals)
    assert work < REFUSED_WORK or refusals == [""]  # a pipe may end at any time of a run
