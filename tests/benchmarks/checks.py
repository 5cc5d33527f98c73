"""What the checks of docs/checks.md cost: of spikes, and of silent data corruption in every N-th update."""

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.benchmarks.features import _seconds
from tests.benchmarks.measure import Comparison, compare
from tests.in_process import config, opened

NONE, SPIKES = "without checks", "trainer.on_spike=skip"
VERIFIED = tuple(f"trainer.verify_every={every}" for every in (1, 10, 100))
COMMON = (
    *("data=synthetic", "trainer.epochs=1", "trainer.evaluate_every=0", "checkpoint.every=0", "logger=[]"),
    *("launcher.threads_per_rank=1", "trainer.device=cpu", "scheduler=constant", "optimizer.lr=0.001"),
)
MODELS = {  # with the number of updates, of 64 samples each
    "mlp": (300, ("model=mlp", "data.image_size=8")),
    "small_cnn": (100, ("model=small_cnn", "data.image_size=32", "model.width=8")),
}


def of(name: str) -> Callable[[], Comparison]:
    """The function that measures the row of a model."""

    def measure(rounds: int = 9) -> Comparison:
        steps, overrides = MODELS[name]
        own = (*COMMON, *overrides, "data.batch_size=64", f"data.train_samples={64 * steps}")
        with tempfile.TemporaryDirectory() as folder:
            candidates: dict[str, Callable[[], float]] = {NONE: partial(_trained, folder, own)}
            candidates |= {each: partial(_trained, folder, (*own, each)) for each in (SPIKES, *VERIFIED)}
            return compare(f"{steps} steps of {name}", candidates, rounds=rounds)

    measure.__module__, measure.__name__ = __name__, name
    return measure


def _trained(folder: str, overrides: tuple[str, ...]) -> float:
    with opened(Path(tempfile.mkdtemp(dir=folder)), config(*overrides)) as trainer:
        trainer.update.prime(trainer.train.example, warm_up=True)
        return _seconds(lambda: trainer.fit(lambda **_: None, due_after_step=lambda _: False))
