"""What is guessed from the command line is what the config says, or nothing."""

from itertools import product

import pytest

from launchers import warm
from launchers.early import guessed_threads, start
from runner.compatibility import unavailable
from runner.config import options
from runner.errors import ConfigurationError
from tests.in_process import config

STRATEGIES = [name for name in options("parallel") if unavailable("parallel", name) is None]
LAUNCHERS = [name for name in options("launcher") if unavailable("launcher", name) is None]
MORE = [
    [],
    ["launcher.nproc_per_node=1"],
    ["launcher.threads_per_rank=3"],
    ["trainer.device=cpu", "data.batch_size=64"],
]


@pytest.mark.parametrize("more", MORE, ids=" ".join)
@pytest.mark.parametrize(("strategy", "launcher"), [*product(STRATEGIES, [None, *LAUNCHERS])])
def test_a_guess_is_right(strategy, launcher, more):
    arguments = [f"parallel={strategy}", *([f"launcher={launcher}"] if launcher else []), *more]
    guess = guessed_threads(arguments)
    try:
        section = config(*arguments)["launcher"]
    except ConfigurationError:
        return
    is_warm = section.get("warm", False) and section["name"] in ("spawn", "torchrun")
    assert guess == (section["threads_per_rank"] if is_warm else None)


@pytest.mark.parametrize(
    ("arguments", "threads"),
    [
        (["parallel=ddp", "launcher.threads_per_rank=2"], 2),
        (["-m", "parallel=ddp,single", "launcher.threads_per_rank=1,2"], 1),
        (["parallel=ddp", "launcher.warm=false"], None),
        (["parallel=single,ddp", "-m"], None),
        (["parallel=ddp", "seed=1,2", "-m", "hydra/launcher=joblib"], None),
        (["parallel=ddp", "seed=1,2", "-m", "hydra.launcher.n_jobs=2"], None),
        (["parallel=ddp", "--cfg", "job"], None),
        (["--config-path", "saved", "parallel=ddp"], None),
        (["parallel=ddp", "launcher.nproc_per_node=0"], None),
        (["parallel=ddp", "launcher.nproc_per_node=many"], None),
        (["parallel=ddp", "launcher.threads_per_rank=-1"], None),
        (["parallel"], None),
        ([], None),
    ],
)
def test_in_doubt_nothing_is_guessed(arguments, threads):
    assert guessed_threads(arguments) == threads


def test_the_server_that_was_guessed_is_the_one_that_is_wanted(monkeypatch):
    started = []
    monkeypatch.setattr(warm, "start", started.append)
    start(["parallel=ddp", "launcher.threads_per_rank=2"])
    start(["parallel=single"])
    assert started == [{"OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "2"}]
