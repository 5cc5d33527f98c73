"""The purpose of a sweep: to find the fastest way of computing, or the settings that train best."""

from collections.abc import Iterable, Sequence

from manyheads.runner.config.lookup import ABOUT
from manyheads.runner.optimizer.option import OptimizerOption
from manyheads.runner.option.declared import ENTRIES
from manyheads.runner.provenance.record import without_effect
from manyheads.runner.report.keys import varies
from manyheads.runner.report.rows import Row

GROUPS = ("parallel", "launcher", "precision")
# Other keys that change how updates are computed, but not their results.
LAYOUT = {
    *(f"trainer.{key}" for key in ("device", "grad_accumulation", "compile", "compile_units", "recompute")),
    *("trainer.channels_last", "trainer.deterministic"),
    *(f"optimizer.{key}" for key in OptimizerOption.layout),
}


def is_layout(key: str) -> bool:
    """Whether a swept key is a backend, or determines how a run is distributed over devices and computed there."""
    plain = key in without_effect() and key not in (*ABOUT, *ENTRIES)
    return plain or key in LAYOUT or key.partition(".")[0] in GROUPS


def compares_speed(rows: Sequence[Row], swept: Iterable[str]) -> bool:
    """Whether speed-ups are meaningful: a backend or a layout was swept, perhaps by a named experiment."""
    if any(map(is_layout, swept)):
        return True
    configs = [row.first.run.config for row in rows if row.first.run.config]
    return "experiment" in swept and any(varies(configs, f"{group}.name") for group in GROUPS)
