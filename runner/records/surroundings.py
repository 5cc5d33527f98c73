"""Finds what differs from when a run was recorded; what can change numbers comes first."""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from rich import box
from rich.table import Table
from rich.text import Text

from manyheads.runner.machine.console import Console
from manyheads.runner.option.tree import Section
from manyheads.runner.provenance.provenance import without_effect
from manyheads.runner.records.values import config_value, text_of
from manyheads.runner.run.json_types import ProvenanceJson
from manyheads.runner.run.yaml_text import flatten

HARMLESS = ("python", "driver")  # versions that cannot change numbers
COMPUTING = ("numpy", "pillow", "scikit-learn", "hydra-core", "omegaconf")  # packages whose versions can change numbers
WHICH = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")  # choose devices, which are compared themselves
# Beginnings of variables that launchers set, torchrun the last, and that differ without an effect on numbers.
OF_LAUNCHERS = ("SLURM_", "TORCH_NCCL_ASYNC_ERROR_HANDLING")
MOST_PACKAGES = 6
MAY = {True: "may", False: "no"}


class Difference(NamedTuple):
    """One difference. ``matters``: whether it can change a run's numbers."""

    what: str
    recorded: str
    now: str
    matters: bool


def overridden(config: Section, overrides: list[str]) -> list[Difference]:
    """The differences between a run config and what overrides set."""
    flat = flatten(config)
    changed = []
    for override in overrides:
        key, _, value = override.partition("=")
        name = key.lstrip("+~")
        if not key.startswith(("hydra.", "trust")):
            matters = without_effect().isdisjoint({name, name.partition(".")[0]})
            changed.append(Difference(key, text_of(config_value(flat, name)), value, matters))
    return changed


def differences(
    recorded: ProvenanceJson,
    now: ProvenanceJson,
    *,
    chosen: list[Difference],
    diffs: tuple[bytes, bytes] | None,
) -> list[Difference]:
    """The differences between two contents of provenance.json, and those in ``chosen``, which overrides make.

    diffs: the uncommitted changes of the code then and now; None if the recorded code runs. What was not recorded, or
    is unknown now, does not count as a difference.
    """
    differing, commits = list(chosen), [recorded.get("commit"), now.get("commit")]
    if diffs is not None and None not in commits and (commits[0], diffs[0]) != (commits[1], diffs[1]):
        then, today = map(_commit, commits, diffs)
        differing.append(Difference("code of manyheads", then, today, True))
    told = {"CPU threads per rank"} if any(d.what == "launcher.threads_per_rank" for d in chosen) else set()
    differing += [
        Difference(what, then, today, matters)
        for what, then, today, matters in _rows(recorded, now)
        if what not in told and None not in (then, today) and then != today
    ]
    return sorted(
        (d._replace(recorded=_text(d.recorded), now=_text(d.now)) for d in differing), key=lambda d: not d.matters
    )


def show(differing: list[Difference]) -> None:
    """Print the differences as a table."""
    console = Console()
    if not differing:
        console.print(
            "before     nothing differs: configuration, code, environment, data and devices are the recorded ones"
        )
        return
    table = Table(box=box.SIMPLE, title="what differs", title_justify="left", title_style="bold", padding=(0, 1))
    for name in ("what", "recorded", "now", "changes numbers"):
        table.add_column(name, overflow="fold", no_wrap=name == "what")
    for row in differing:
        style = "" if row.matters else "dim"
        table.add_row(*map(Text, (row.what, row.recorded, row.now, MAY[row.matters])), style=style)
    console.print(table)


def _commit(commit: Any, diff: bytes) -> str:
    changes = f" with changes {hashlib.sha256(diff).hexdigest()[:6]}" if diff else ", clean"
    return f"{commit[:10]}{changes}"


def _rows(recorded: ProvenanceJson, now: ProvenanceJson) -> Iterator[tuple[str, Any, Any, bool]]:
    contents: tuple[Mapping[str, Any], ...] = (recorded, now)

    def both(name: str, section: str | None = None) -> tuple[Any, Any]:
        then, today = ((content.get(section) or {}) if section else content for content in contents)
        return then.get(name), today.get(name)

    for package in dict.fromkeys([*(recorded.get("own_code") or ()), *(now.get("own_code") or ())]):
        then, today = (digest and f"sha256 {digest[:10]}" for digest in both(package, "own_code"))
        yield f"code of {package}", then, today, True
    yield "data", _data(recorded, now), _data(now, recorded), True
    for name in _libraries(recorded, now):
        yield name, *both(name, "versions"), True
    packages = [{k.lower(): v for k, v in (content.get("packages") or {}).items()} for content in contents]
    if not all(both("commit")):  # the commits say more about its code
        yield "manyheads", packages[0].get("manyheads"), packages[1].get("manyheads"), True
    for name in COMPUTING:
        yield name, packages[0].get(name), packages[1].get(name), True
    yield "GPUs", *both("devices"), True
    yield "ranks", *both("ranks"), True
    yield "CPU threads per rank", *both("threads_per_rank", "cpu"), True
    yield "CPU", *both("model", "cpu"), True
    before, after = (content.get("environment") or {} for content in contents)
    for name in sorted({*before, *after}):
        if not name.startswith(OF_LAUNCHERS):
            yield name, before.get(name, "not set"), after.get(name, "not set"), name not in WHICH
    yield "launcher", *both("launcher"), False
    for name in HARMLESS:
        yield name, *both(name, "versions"), False
    yield "CPU cores", *both("cores", "cpu"), False
    for name in ("host", "system"):
        yield name, *both(name), False
    yield from _other_packages(*packages, shown={"manyheads", *_libraries(recorded, now), *COMPUTING})


def _libraries(*contents: ProvenanceJson) -> list[str]:
    """The names of recorded versions that can change numbers."""
    return list(
        dict.fromkeys(name for content in contents for name in content.get("versions") or {} if name not in HARMLESS)
    )


def _other_packages(
    then: dict[str, str], today: dict[str, str], *, shown: set[str]
) -> Iterator[tuple[str, Any, Any, bool]]:
    changed = [name for name in sorted({*then, *today} - shown) if then.get(name) != today.get(name)]
    if then and today and changed:
        for name in changed[:MOST_PACKAGES]:
            yield name, then.get(name, "absent"), today.get(name, "absent"), False
        if len(changed) > MOST_PACKAGES:
            yield "other packages", "", f"{len(changed) - MOST_PACKAGES} more", False


def _data(content: ProvenanceJson, other: ProvenanceJson) -> str | None:
    """A description that is the same for the same data, as far as both fingerprints can tell."""
    data, others = content.get("data"), other.get("data")
    if not (data and others):
        return None
    kind, digest = "sizes", data["sizes"]
    if data["contents"] and others["contents"]:
        kind, digest = "contents", data["contents"]
    return f"{data['files']:,} files, {data['bytes']:,} bytes; sha256 of {kind} {digest[:10]}"


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return str(value)
