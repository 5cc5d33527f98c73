"""``manyheads.scale`` and ``manyheads.validate_scale``: predictions from Python, and how good they are here."""

from collections.abc import Sequence
from pathlib import Path

from manyheads.runner.answers.scale.answer import Help, Scaled
from manyheads.runner.answers.scale.simulator.replay import Parts
from manyheads.runner.answers.scale.targets import OF_RUN
from manyheads.runner.answers.scale.validated import Validated
from manyheads.runner.api import Term, as_flags, as_typed, call
from manyheads.runner.errors import ExitCode


def scale(
    overrides: Sequence[str] = (),
    *,
    devices: Sequence[int],
    network: str | Path,
    conf: str | Path | None = None,
    **terms: Term,
) -> list[Scaled]:
    """Predict a run on other numbers of devices like ``manyheads scale <overrides>``, in a separate process.

    overrides: as on the command line, or the folder of a run and changes to its config. network: a name, or a YAML
    file. conf: a folder with your own configs, like --config-dir. terms: the command's other flags, such as
    ``device="a100-sxm-40gb"``, ``batch="device"``, ``price=2.5``.

    Returns a prediction for each number of devices. Raises ConfigurationError if the run cannot be predicted, RunFailed
    if the measurement fails, and KeyboardInterrupt if it was stopped.
    """
    line = as_typed(overrides, conf)
    asked = {"devices": _typed(devices), "network": str(network), **terms}
    ended = call("scale", *line.arguments, *as_flags(asked))
    if ended.code not in (ExitCode.DONE, ExitCode.NO) or not ended.result:
        raise ended.error()
    return [
        Scaled(**{**row, "parts": Parts(**row["parts"]), "help": Help(**row["help"])}) for row in ended.result["rows"]
    ]


def validate_scale(
    overrides: Sequence[str] = (),
    *,
    devices: Sequence[int] = (2, 3, 4),
    batch: str = OF_RUN,
    conf: str | Path | None = None,
) -> Validated:
    """Predict ranks of this machine, run on them and compare, like ``manyheads scale <overrides> --validate``.

    overrides, conf: as for ``scale``. devices: numbers of ranks. batch: what keeps its number of samples on more ranks,
    "run" (an update) or "device" (each rank's micro-batches).

    Returns the predictions with what was measured. Raises ConfigurationError if the run cannot be predicted, or no CPU
    quotas can be set here, RunFailed if a measurement fails, and KeyboardInterrupt if it was stopped.
    """
    line = as_typed(overrides, conf)
    asked: dict[str, Term] = {"validate": True, "devices": _typed(devices), "batch": batch}
    ended = call("scale", *line.arguments, *as_flags(asked))
    if ended.code != ExitCode.DONE or not ended.result:
        raise ended.error()
    return Validated.of(ended.result)


def _typed(devices: Sequence[int]) -> str:
    return ",".join(map(str, devices))
