"""What a sweep asks: which way of computing is fastest, or which settings train best."""

from collections.abc import Iterable, Sequence

from manyheads.runner.config.lookup import ABOUT
from manyheads.runner.provenance.record import WITHOUT_EFFECT
from manyheads.runner.report.keys import varies
from manyheads.runner.report.rows import Row

GROUPS = ("parallel", "launcher", "precision")
# Other keys that say how the same updates are computed, and not what they are.
LAYOUT = (WITHOUT_EFFECT - {*ABOUT}) | {
    *(f"trainer.{key}" for key in ("device", "grad_accumulation", "compile", "compile_units", "recompute")),
    *("trainer.channels_last", "trainer.deterministic", "optimizer.fused"),
}


def is_layout(key: str) -> bool:
    """Whether a swept key is a backend, or says how a run is spread over devices and computed there."""
    return key in LAYOUT or key.partition(".")[0] in GROUPS


def compares_speed(rows: Sequence[Row], swept: Iterable[str]) -> bool:
    """Whether speed-ups mean something: a backend or a layout was swept, maybe by a named experiment."""
    if any(map(is_layout, swept)):
        return True
    configs = [row.first.run.config for row in rows if row.first.run.config]
    return "experiment" in swept and any(varies(configs, f"{group}.name") for group in GROUPS)
