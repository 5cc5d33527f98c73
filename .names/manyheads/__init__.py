"""One PyTorch experiment on any parallel backend: composed by Hydra, run by one loop, compared fairly."""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from manyheads.runner.answers.judge.api import Verdict, judge
    from manyheads.runner.answers.scale.api import scale
    from manyheads.runner.answers.tune.api import Tuning, tune
    from manyheads.runner.api import Row, Sweep, run, sweep
    from manyheads.runner.errors import BudgetSpent, ConfigurationError, RunFailed
    from manyheads.runner.records.run_result import Result
    from manyheads.runner.serve.rank.trained import load

if "MANYHEADS_PARENT" in os.environ:  # this process is a rank; the user's own processes stay as they are
    from manyheads.runner.machine import import_apart

    import_apart.install()

__version__ = "0.2.0"
__all__ = [
    "BudgetSpent",
    "ConfigurationError",
    "Result",
    "Row",
    "RunFailed",
    "Sweep",
    "Tuning",
    "Verdict",
    "__version__",
    "judge",
    "load",
    "run",
    "scale",
    "sweep",
    "tune",
]

# Imported when they are asked for, so that importing this package costs nothing.
_PLACES = {
    "run": "runner.api",
    "Result": "runner.records.run_result",
    "sweep": "runner.api",
    "Row": "runner.api",
    "Sweep": "runner.api",
    "judge": "runner.answers.judge.api",
    "Verdict": "runner.answers.judge.api",
    "tune": "runner.answers.tune.api",
    "Tuning": "runner.answers.tune.api",
    "scale": "runner.answers.scale.api",
    "load": "runner.serve.rank.trained",
    "BudgetSpent": "runner.errors",
    "ConfigurationError": "runner.errors",
    "RunFailed": "runner.errors",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *_PLACES]
