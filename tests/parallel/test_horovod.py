"""The real Horovod, its ranks started by the real horovodrun: what its options do, and that its ranks agree."""

import json
import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from manyheads.launchers.launch import launch, prepare
from manyheads.runner.run.heartbeat import PLACE
from manyheads.runner.run.run_folder import RunFolder
from tests.conftest import ROOT, execute
from tests.in_process import rows, small, train
from tests.parallel.horovod_ranks import ADASUM, CHANGED, NEUTRAL, PLAIN, SHARED, cases
from tests.tail import tailed

pytestmark = [pytest.mark.processes, pytest.mark.needs("horovod")]
GROUPS = [(2, "gloo"), (3, "gloo"), (2, "mpi")]
MINE = [(ranks, controller, name) for ranks, controller in GROUPS for name in cases(ranks, controller)]


# What the tests below look at, and one more of each kind.
ALWAYS = ("plain", "muon", "accumulated and clipped", "left out", "scaled", "three groups", "compressed")


def without_others(cases: list[Any]) -> list[Any]:
    """Three ranks, and MPI, have tests/launchers/test_equal_results.py besides; here they belong to the tail."""
    return tailed(cases, always=[case for case in cases if case[:2] == (2, "gloo") and {*case[2:]} <= {*ALWAYS}])


class Trained:
    """Runs the cases of a group of ranks once, when the first of them is asked for. tail: also those of the tail."""

    def __init__(self, folder: Path, tail: bool):
        self._folder, self._tail, self._results = folder, tail, {}

    def folder(self, ranks: int, controller: str) -> Path:
        return self._folder / f"{ranks}-{controller}"

    def results(self, ranks: int, controller: str) -> dict[str, Any]:
        if (ranks, controller) not in self._results:
            folder = self.folder(ranks, controller)
            folder.mkdir()
            worker = (sys.executable, "-m", "tests.parallel.horovod_ranks", str(folder), controller)
            names = cases(ranks, controller) if self._tail else ALWAYS
            options = ("-np", str(ranks), f"--{controller}", "--network-interfaces", "lo")
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("OMP_NUM_THREADS", "1")
                command = (sys.executable, "-m", "horovod.runner.launch", *options, *worker, *names)
                done = execute(*command, cwd=ROOT, timeout=240)
            assert done.code == 0, done.out + done.err
            self._results[ranks, controller] = json.loads((folder / "results.json").read_text())
        return self._results[ranks, controller]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Trained:
    here = [item for item in request.session.items if item.path == Path(__file__)]
    return Trained(tmp_path_factory.mktemp("horovod"), any(item.get_closest_marker("tail") for item in here))


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], Path]:
    """The same run without Horovod, once for all cases that should give the same."""

    @cache
    def run(overrides: tuple[str, ...]) -> Path:
        path = tmp_path_factory.mktemp("expected")
        if "parallel=ddp" in overrides:
            folder = RunFolder(path)
            folder.write_config(small(*overrides))
            launch(prepare(folder))
        else:
            train(path, small(*overrides))
        return path

    def of(name: str, ranks: int) -> Path:
        overrides = SHARED.get(name, PLAIN)
        if "precision=amp" in overrides:  # fp16 overflows at another step for another number of ranks: there, DDP's
            overrides = (*overrides, "parallel=ddp", f"launcher.nproc_per_node={ranks}")
        return run(overrides)

    return of


def losses(path: Path) -> list[float]:
    return [float(row["loss"]) for row in rows(path / "steps.csv")]


def weights(path: Path) -> dict[str, torch.Tensor]:
    return torch.load(path / "checkpoints" / "last.pt", weights_only=True)["model"]


@pytest.mark.parametrize(("ranks", "controller", "name"), without_others(MINE))
def test_ranks_end_with_the_same_weights(trained: Trained, ranks: int, controller: str, name: str) -> None:
    digests = trained.results(ranks, controller)[name]["weights"]
    assert len(digests) == ranks
    assert len(set(digests)) == 1


@pytest.mark.parametrize(
    ("ranks", "controller", "name"), without_others([case for case in MINE if case[2] in {**SHARED, **NEUTRAL}])
)
def test_computes_what_others_compute(
    trained: Trained, expected: Callable[[str, int], Path], ranks: int, controller: str, name: str
) -> None:
    other = expected(name, ranks)
    trained.results(ranks, controller)
    here = trained.folder(ranks, controller) / name
    assert len(losses(other)) >= 4
    assert losses(here) == pytest.approx(losses(other), rel=1e-9, nan_ok=True)
    found = weights(here)
    for key, value in weights(other).items():
        assert (found[key] - value).norm() <= 1e-9 * value.norm(), key


def test_overflow_is_left_out(trained: Trained) -> None:
    """The loss scale starts so high that updates overflow, and halves until they don't."""
    assert 1 < trained.results(2, "gloo")["scaled"]["scale"] < 1e9


def test_update_that_is_not_finite_is_left_out(trained: Trained) -> None:
    assert trained.results(2, "gloo")["left out"]["skipped"] == 1


def test_compression_changes_the_result_a_little(trained: Trained) -> None:
    results = trained.results(2, "gloo")
    assert results["compressed"]["weights"] != results["plain"]["weights"]
    folder = trained.folder(2, "gloo")
    assert losses(folder / "compressed") == pytest.approx(losses(folder / "plain"), rel=0.01)


@pytest.mark.needs("mpi")
@pytest.mark.tail
def test_adasum_learns_another_way(trained: Trained) -> None:
    results = trained.results(2, "mpi")
    assert results["adasum"]["weights"] != results["plain"]["weights"]
    epochs = rows(trained.folder(2, "mpi") / "adasum" / "epochs.csv")
    assert float(epochs[-1]["train_loss"]) < losses(trained.folder(2, "mpi") / "adasum")[0]


@pytest.mark.parametrize(("ranks", "controller"), without_others(GROUPS))
def test_collectives(trained: Trained, ranks: int, controller: str) -> None:
    found = trained.results(ranks, controller)["collectives"]
    total = sum(range(1, ranks + 1))
    assert found["sum"] == [total, 10 * total]
    assert found["max"] == [ranks, -1]
    assert found["gather"] == [{"rank": rank, "text": "x" * (rank + 1)} for rank in range(ranks)]
    assert found["buffers"] == [[1.0, 1.0]] * ranks
    assert found["summary"] == f"{ranks} ranks over {'MPI' if controller == 'mpi' else 'Gloo'}"


def test_no_case_is_forgotten() -> None:
    assert {*SHARED, *NEUTRAL, *CHANGED} <= set(cases(2, "gloo"))
    assert set(ADASUM) <= set(cases(2, "mpi"))


def test_open_mpis_shared_memory_is_in_the_runs_folder_on_each_of_several_machines(monkeypatch, tmp_path):
    from manyheads.runner.parallel.rank import horovod

    found = {}
    settings = {"op": "average", "compression": "none", "gradient_predivide_factor": 1.0, "sync_batchnorm": False}
    numbers = {"timeout": 30, "backward_passes_per_step": 1, "num_groups": 0, "fusion_threshold": 1, "cycle_time": 1}
    place = {"rank": 3, "local_rank": 1, "world_size": 4, "device_type": "cpu"}
    strategy = horovod.Horovod(**settings, **numbers, **place, timeline=None)
    monkeypatch.setattr(os, "environ", {**os.environ, PLACE: f"{tmp_path}/manyheads-1-"})
    for name, result in {"init": lambda: found.update(os.environ), "rank": lambda: 3, "size": lambda: 4}.items():
        monkeypatch.setattr(horovod.hvd, name, result)
    strategy.join()
    assert found["OMPI_MCA_btl_vader_backing_directory"] == f"{tmp_path}/manyheads-1-2"
