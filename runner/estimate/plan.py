"""From the command's overrides to a run config for each combination of their values."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override

from manyheads.runner.config.arguments import CommandLine
from manyheads.runner.config.command_line import explained
from manyheads.runner.config.composing import run_config
from manyheads.runner.config.origin import Origin
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.run.errors import ConfigurationError

DEVICE = "trainer.device"  # no device is needed, so that none of this machine's may limit the number of ranks


@dataclass(frozen=True)
class Planned:
    """A combination. ``label``: the overrides by which it differs.

    ``run``: its config; None if it is refused, for this ``reason``.
    """

    label: str
    run: RunConfig | None
    reason: str = ""


def plan(line: CommandLine, origin: Origin) -> list[Planned]:
    """All combinations, in the order of a sweep. Raises ConfigurationError where there is one only, and it is wrong."""
    given = [str(each) for each in line.overrides]
    with explained(line):
        parsed = OverridesParser.create().parse_overrides(given)
    for override in parsed:
        if override.key_or_group.partition(".")[0].partition("/")[0] == "hydra":
            raise ConfigurationError(f"{override.input_line}: estimate starts no runs. Leave it out.")
    if not any(override.key_or_group == DEVICE for override in parsed):
        parsed.append(OverridesParser.create().parse_override(f"{DEVICE}=cpu"))
    combinations = [*product(*([*_values(override)] for override in parsed))]
    swept = {override.key_or_group for override in parsed if override.is_sweep_override()}
    found = []
    for words in combinations:
        label = " ".join(each for each in words if each.partition("=")[0].lstrip("+") in swept)
        try:
            found.append(Planned(label, run_config(words, line, origin)))
        except ConfigurationError as error:
            if len(combinations) == 1:
                raise
            found.append(Planned(label, None, str(error)))
    return found


def _values(override: Override) -> Iterator[str]:
    if not override.is_sweep_override():
        yield str(override.input_line)
        return
    key = str(override.input_line).partition("=")[0]
    for value in override.sweep_string_iterator():
        yield f"{key}={value}"
