"""The command ``estimate``: a run config for each combination of swept values, and its estimate."""

import re
import sys
from collections.abc import Iterator, Sequence
from itertools import product

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override

from manyheads.runner.answers.estimate.answer import Estimates
from manyheads.runner.answers.estimate.estimate_picture import draw
from manyheads.runner.answers.measure.estimated import PlannedEstimate, estimated
from manyheads.runner.answers.measure.findings import DeviceMemory
from manyheads.runner.charts.picture_file import PictureFile
from manyheads.runner.config.command_line import CommandLine
from manyheads.runner.config.composing import run_config
from manyheads.runner.config.hydra_errors import explained
from manyheads.runner.config.origin import Origin, resolve_origin
from manyheads.runner.errors import ConfigurationError, Unavailable, not_allowed
from manyheads.runner.machine import hardware
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.run.progress import working

RANKS = "launcher.nproc_per_node"
DEVICE = "trainer.device"  # set to cpu, so that the number of this machine's GPUs does not limit the ranks


def plan(line: CommandLine, origin: Origin) -> list[PlannedEstimate]:
    """All combinations, in the order of a sweep. Raises ConfigurationError if there is only one, and it is refused."""
    given = [str(override) for override in line.overrides]
    with explained(line):
        parsed = OverridesParser.create().parse_overrides(given)
    for override in parsed:
        if override.key_or_group.partition(".")[0].partition("/")[0] == "hydra":
            message = f"{override.input_line}: estimate starts no runs. Leave it out."
            raise ConfigurationError(message, key=override.key_or_group, value=override.value())
    assumed = not any(override.key_or_group == DEVICE for override in parsed)
    if assumed:
        parsed.append(OverridesParser.create().parse_override(f"{DEVICE}=cpu"))
    combinations = [*product(*([*_values(override)] for override in parsed))]
    swept = {override.key_or_group for override in parsed if override.is_sweep_override()}
    planned = []
    for words in combinations:
        label = " ".join(word for word in words if word.partition("=")[0].lstrip("+") in swept)
        try:
            compose = run_config if len(combinations) == 1 else _config
            on_gpus = assumed or f"{DEVICE}=cpu" not in words
            planned.append(PlannedEstimate(label, compose(words, line, origin), on_gpus=on_gpus))
        except ConfigurationError as error:
            if len(combinations) == 1:
                raise
            planned.append(PlannedEstimate(label, None, str(error)))
    return planned


def _config(words: Sequence[str], line: CommandLine, origin: Origin) -> RunConfig:
    """The run config. A strategy of one process ignores a number of ranks, so that it can be compared with others.

    Raises ConfigurationError.
    """
    try:
        return run_config(words, line, origin)
    except ConfigurationError:
        others = [word for word in words if not word.startswith(f"{RANKS}=")]
        if len(others) == len(words) or not (run := run_config(others, line, origin)).parallel.one_process:
            raise
        return run


def _values(override: Override) -> Iterator[str]:
    if not override.is_sweep_override():
        yield str(override.input_line)
        return
    key = str(override.input_line).partition("=")[0]
    for value in override.sweep_string_iterator():
        yield f"{key}={value}"


UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def estimate(
    overrides: list[str],
    *,
    config_dir: str | None = None,
    device_memory: str | None = None,
    picture: str | None = None,
) -> Estimates:
    """Estimate each configuration. Raises ConfigurationError."""
    device = _device(device_memory)
    image = None if picture is None else PictureFile.named(picture)
    line, origin = resolve_origin(CommandLine.of(overrides, config_dir))
    planned = plan(line, origin)
    estimates = []
    with working("estimating", len(planned)) as work:
        for candidate in planned:
            work.next(candidate.label or "one update, without its numbers")
            estimates.append(estimated(candidate, alone=len(planned) == 1))
            work.advance()
    if image is not None:
        drawn = draw(estimates, device, form=image.form)
        if drawn is None:
            raise Unavailable.at("--picture", picture, ": nothing to draw, since all configurations were refused.")
        image.write(drawn)
        print(f"wrote {picture}", file=sys.stderr)
    return Estimates.of(estimates, device)


def _device(typed: str | None) -> DeviceMemory | None:
    if typed is None:
        memory = hardware.gpu_memory()
        return None if memory is None else DeviceMemory(memory, "this machine's GPUs")
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?\s*", typed, re.IGNORECASE)
    if match is None or match[2].lower() not in UNITS or float(match[1]) == 0:
        raise not_allowed("--device-memory", typed, "a size such as 80GB or 79.2GiB")
    return DeviceMemory(int(float(match[1]) * UNITS[match[2].lower()]))
