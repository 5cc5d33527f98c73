"""The command ``estimate``: a run config for each combination of swept values, and its estimate."""

import re
from collections.abc import Sequence
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override

from manyheads.runner.answers.estimate.answer import Estimates
from manyheads.runner.answers.estimate.print_estimate import name_of, readable
from manyheads.runner.answers.measure.estimated import PlannedEstimate, estimated
from manyheads.runner.answers.measure.findings import DeviceMemory, Estimate
from manyheads.runner.charts.colours import short
from manyheads.runner.charts.picture_file import form_of, render, write_picture
from manyheads.runner.config.command_line import CommandLine
from manyheads.runner.config.composing import run_config
from manyheads.runner.config.hydra_errors import explained, refuse_hydra
from manyheads.runner.config.origin import Origin, resolve_origin
from manyheads.runner.errors import ConfigurationError, Unavailable, not_allowed
from manyheads.runner.machine import hardware
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.run.progress import working

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RANKS = "launcher.nproc_per_node"
DEVICE = "trainer.device"  # set to cpu, so that the number of this machine's GPUs does not limit the ranks
HELD = {  # also distinct for colour-blind readers
    "parameters": "#0072b2",
    "gradients": "#56b4e9",
    "optimizer": "#009e73",
    "masters": "#117733",
    "buffers": "#666666",
    "activations": "#e69f00",
    "working": "#f3d9a4",
}
NAMES = {"optimizer": "optimizer state", "masters": "fp32 copies", "working": "workspace"}
SENT = ("#cc79a7", "#882255", "#d55e00", "#332288", "#88ccee", "#aa4499")
GB = 10**9


def plan(line: CommandLine, origin: Origin) -> list[PlannedEstimate]:
    """All combinations, in the order of a sweep. Raises ConfigurationError if there is only one, and it is refused."""
    with explained(line):
        parsed = OverridesParser.create().parse_overrides([*line.overrides])
    refuse_hydra(parsed, because="estimate starts no runs")
    assumed = not any(override.key_or_group == DEVICE for override in parsed)
    if assumed:
        parsed.append(OverridesParser.create().parse_override(f"{DEVICE}=cpu"))
    combinations = [*product(*map(_values, parsed))]
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


def _values(override: Override) -> list[str]:
    if not override.is_sweep_override():
        return [str(override.input_line)]
    key = str(override.input_line).partition("=")[0]
    return [f"{key}={value}" for value in override.sweep_string_iterator()]


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
    form = "" if picture is None else form_of(picture)
    line, origin = resolve_origin(CommandLine.of(overrides, config_dir))
    planned = plan(line, origin)
    estimates = []
    with working("estimating", len(planned)) as work:
        for candidate in planned:
            work.next(candidate.label or "one update, without its numbers")
            estimates.append(estimated(candidate, alone=len(planned) == 1))
            work.advance()
    if picture is not None:
        if (drawn := draw(estimates, device, form=form)) is None:
            raise Unavailable.at("--picture", picture, ": nothing to draw, since all configurations were refused.")
        write_picture(picture, drawn)
    return Estimates.of(estimates, device)


def _device(typed: str | None) -> DeviceMemory | None:
    if typed is None:
        memory = hardware.gpu_memory()
        return None if memory is None else DeviceMemory(memory, "this machine's GPUs")
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?\s*", typed, re.IGNORECASE)
    if match is None or match[2].lower() not in UNITS or float(match[1]) == 0:
        raise not_allowed("--device-memory", typed, "a size such as 80GB or 79.2GiB")
    return DeviceMemory(int(float(match[1]) * UNITS[match[2].lower()]))


def draw(estimates: list[Estimate], device: DeviceMemory | None, *, form: str) -> bytes | None:
    """The picture as ``form``, "png" or "svg"; None if nothing could be estimated."""
    rehearsed = [estimate for estimate in estimates if estimate.holds]
    if not rehearsed:
        return None
    return render(partial(_fill, rehearsed, device), size=(12, 2.3 + 0.42 * len(rehearsed)), form=form)


def _fill(rehearsed: list[Estimate], device: DeviceMemory | None, figure: "Figure") -> None:
    held, sent = figure.subplots(1, 2, width_ratios=(1.2, 1))
    names = [short(name_of(estimate)) for estimate in rehearsed]
    most = max(estimate.largest.total for estimate in rehearsed)
    scale, unit = next(((size, name) for size, name in ((GB, "GB"), (10**6, "MB")) if most >= size), (1000, "kB"))
    parts = [{kind: size / scale for kind, size in estimate.largest.parts().items()} for estimate in rehearsed]
    _stack(held, names, parts, {kind: (NAMES.get(kind, kind), color) for kind, color in HELD.items()})
    title = f"{unit} that the largest rank holds at its peak"
    if device is not None:
        limit = device.memory / scale
        held.axvline(limit, color="#b00020", linewidth=1.6)
        held.set_xlim(0, 1.06 * max(limit, most / scale))
        title += f"; red: the device's {readable(device.memory)}"
    held.set_title(title)
    traffic = [
        {kind: each_kind.bytes / scale for kind, each_kind in (estimate.largest.traffic or {}).items()}
        for estimate in rehearsed
    ]
    kinds = dict.fromkeys(kind for sizes in traffic for kind in sizes)
    _stack(sent, names, traffic, {kind: (kind, color) for kind, color in zip(kinds, SENT, strict=False)})
    sent.set_title(f"{unit} communicated per update")
    sent.set_yticklabels([])


def _stack(axes: "Axes", names: list[str], rows: list[dict[str, float]], kinds: dict[str, tuple[str, str]]) -> None:
    """Draw a bar for each row, with its parts next to each other."""
    left = [0.0] * len(rows)
    for kind, (name, color) in kinds.items():
        widths = [row.get(kind, 0.0) for row in rows]
        if any(widths):
            marks: Any = {"left": left, "height": 0.7, "color": color, "label": name}
            axes.barh(range(len(rows)), widths, **marks)
            left = [before + width for before, width in zip(left, widths, strict=True)]
    axes.set_yticks(range(len(rows)), names)
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0)
    axes.margins(x=0.06)
    axes.set_xlim(left=0)
    if any(left):
        axes.legend(loc="upper left", bbox_to_anchor=(0, -0.18), ncols=3, fontsize=9, frameon=False, columnspacing=1.2)
