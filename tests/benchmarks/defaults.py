"""Training by the command with its default settings, against the same by hand with torch's own.

Each candidate is a fresh process, since OpenMP reads its settings when torch is imported. What is compared is an update
in the median epoch without the first, as the run records it. ``python -m tests.benchmarks defaults``
takes some five minutes on free cores.
"""

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from manyheads.runner.records.load_run import read_columns
from manyheads.runner.run.run_folder import RunFolder
from tests.benchmarks.measure import Comparison, compare
from tests.benchmarks.start import PROJECT, TORCHRUN

OURS, BY_HAND = "manyheads, default settings", "a script by hand, torch's own settings"
LOADED = "small_cnn with loader processes"
# What it is, its global batch, and epochs enough for a second or two.
MODELS: dict[str, tuple[tuple[str, ...], int, int]] = {
    "mlp": (("model=mlp",), 64, 60),
    "small_cnn": ((), 64, 8),
    LOADED: (("data.num_workers=2",), 64, 8),  # as of image folders and data sets of one's own
    "resnet18": (("model=resnet18", "trainer.limit_train=4"), 64, 5),
    "gpt nano": (
        ("model=gpt", "data=stdlib_text", "task=language_model", "optimizer=adamw", "trainer.limit_train=6"),
        16,
        6,
    ),
}
QUICK = ("trainer.device=cpu", "trainer.evaluate_every=0", "checkpoint.every=0", "scheduler=constant")
CHOSEN = ("OMP_", "GOMP_", "KMP_", "MKL_")


def of(model: str, ranks: int) -> Callable[[], Comparison]:
    """What measures one model on that many ranks."""

    def measure(rounds: int = 3) -> Comparison:
        hand = partial(by_script, model, ranks)
        return compare(
            title(model, ranks), {BY_HAND: hand, OURS: partial(by_command, model, ranks)}, rounds=rounds, warm_up=False
        )

    measure.__module__, measure.__name__ = __name__, f"{model} x {ranks}"
    return measure


def title(model: str, ranks: int) -> str:
    return f"an update of {model}, {ranks} rank{'s' * (ranks > 1)}"


def by_command(model: str, ranks: int, *overrides: str) -> float:
    """Seconds of an update by the command, with these overrides."""
    options, batch, epochs = MODELS[model]
    given = (*options, *QUICK, *overrides, f"data.batch_size={batch}", f"trainer.epochs={epochs}")
    strategy = ("parallel=ddp", f"launcher.nproc_per_node={ranks}") if ranks > 1 else ()
    with tempfile.TemporaryDirectory() as folder:
        _output(sys.executable, "run.py", *given, *strategy, f"hydra.run.dir={folder}/run")
        epochs_table = read_columns(RunFolder(Path(folder) / "run").epochs)
        return statistics.median(epochs_table["train_seconds"][1:]) / epochs_table["step"][0]


def by_script(model: str, ranks: int) -> float:
    """The same by hand."""
    options, batch, epochs = MODELS[model]
    given = (str(epochs), *options, *QUICK, f"data.batch_size={batch // ranks}", "logger=[]")
    python = (sys.executable,) if ranks == 1 else TORCHRUN
    return float(_output(*python, "-m", "tests.benchmarks.by_hand", *given).split()[-1])


def _output(*command: str) -> str:
    """What a command prints that finds no setting of OpenMP in its environment."""
    bare = {name: value for name, value in os.environ.items() if not name.startswith(CHOSEN)}
    bare["PYTHONPATH"] = os.pathsep.join((str(PROJECT / ".names"), str(PROJECT)))
    return subprocess.run(command, cwd=PROJECT, env=bare, check=True, stdout=subprocess.PIPE, text=True).stdout
