"""``manyheads.scale``: predictions from Python."""

from collections.abc import Sequence
from pathlib import Path

from manyheads.runner.answers.scale.answer import Help, Scaled
from manyheads.runner.answers.scale.simulator.replay import Parts
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
    asked = {"devices": ",".join(map(str, devices)), "network": str(network), **terms}
    ended = call("scale", *as_typed(overrides, conf).arguments, *as_flags(asked))
    if ended.code not in (ExitCode.DONE, ExitCode.NO) or not ended.result:
        raise ended.error()
    return [
        Scaled(**{**row, "parts": Parts(**row["parts"]), "help": Help(**row["help"])}) for row in ended.result["rows"]
    ]
