"""Reads a run folder leniently: the run may be in progress, killed, or older than some of the files."""

import sys
from array import array
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from operator import methodcaller
from pathlib import Path
from typing import Any

from manyheads.runner.errors import ConfigurationError, printable
from manyheads.runner.option.declared import declared
from manyheads.runner.option.tree import OPTION
from manyheads.runner.run import yaml_text
from manyheads.runner.run.data_files import MOST_TABLE_BYTES, parse_json, printable_texts, read_text
from manyheads.runner.run.folder import MOST_BYTES, Folder
from manyheads.runner.run.frozen import MOST_BYTES as MOST_CONFIG_BYTES
from manyheads.runner.run.frozen import FlatConfig, frozen
from manyheads.runner.run.json_types import ProvenanceJson, ResultJson, right
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.trust.allowed_keys import may_declare
from manyheads.runner.trust.trust_store import Trust, trusted_packages

Columns = dict[str, Sequence[float]]
PROJECT = "manyheads."


@dataclass(frozen=True)
class Run:
    """A run's small files. ``config``: empty if no config was frozen; tables are lists by column."""

    folder: Path
    config: FlatConfig = field(default_factory=FlatConfig)
    result: ResultJson = field(default_factory=ResultJson)
    provenance: ProvenanceJson = field(default_factory=ProvenanceJson)
    steps: Columns = field(default_factory=dict)
    epochs: Columns = field(default_factory=dict)
    gpu: Columns = field(default_factory=dict)

    def declared(self, group: str) -> Any:
        """The declaration of the run's option of a group; the group's base class if it is untrusted or missing."""
        prefix = f"{group}."
        settings = self.config.sections.get(group, {})
        section = {key[len(prefix) :]: value for key, value in settings.items() if key.startswith(prefix)}
        if (name := section.pop(OPTION, None)) and self._is_trusted(group, name):
            with suppress(Exception):  # a user's module may raise anything; the report has other rows
                return declared(group, {**section, OPTION: name})
        return declared(group, section)

    @property
    def repeats_exactly(self) -> bool:
        """Whether a repetition computes the same to the last bit: on a CPU, or by deterministic algorithms."""
        return self.config.get("trainer.device") != "cuda" or bool(self.config.get("trainer.deterministic"))

    def _is_trusted(self, group: str, name: str) -> bool:
        if may_declare(group, name, Trust()):  # the project's own, as nearly always: nothing need be read
            return True
        if name.startswith(PROJECT):  # a class of this project that has moved since the run was recorded
            return False
        return may_declare(group, name, self._trust) or self._is_own

    @cached_property
    def _trust(self) -> Trust:
        return Trust(trusted_packages())

    @cached_property
    def _is_own(self) -> bool:
        return RunFolder(self.folder).is_own()


def load_run(path: Path, *, steps: Collection[str] | None = None, epochs: Callable[[str], bool] | None = None) -> Run:
    """Load a run; what is missing or unreadable is left empty.

    ``steps``: columns of steps.csv; ``epochs``: whether a column of epochs.csv is wanted; None for all.
    """
    folder = RunFolder(path)
    texts = _texts(folder)
    written = texts.get(folder.config, "")
    return Run(
        folder=folder.path,
        config=FlatConfig(printable_texts(frozen(written).sections, written)),
        result=right(_mapping(texts.get(folder.result)), ResultJson),
        provenance=right(_mapping(texts.get(folder.provenance)), ProvenanceJson),
        steps=columns(texts.get(folder.steps, ""), None if steps is None else steps.__contains__),
        epochs=columns(texts.get(folder.epochs, ""), epochs),
        gpu=columns(texts.get(folder.gpu, "")),
    )


def _texts(folder: RunFolder) -> dict[Path, str]:
    """The run's small files and tables; without those that are missing or unreadable."""
    tables = dict.fromkeys((folder.steps, folder.epochs, folder.gpu), MOST_TABLE_BYTES)
    limits = {folder.config: MOST_CONFIG_BYTES, folder.result: MOST_BYTES, folder.provenance: MOST_BYTES, **tables}
    texts = {}
    with suppress(OSError, ConfigurationError), Folder(folder.path) as held:
        for path, most in limits.items():
            with suppress(OSError, ConfigurationError):
                texts[path] = held.read(path.name, most=most).decode(errors="replace")
    return texts


def read_columns(path: Path, names: Collection[str] | None = None) -> Columns:
    """The table in a file, as ``columns`` returns it; empty if there is no readable file."""
    try:
        return columns(read_text(path, most=MOST_TABLE_BYTES), None if names is None else names.__contains__)
    except (OSError, ConfigurationError):
        return {}


def columns(text: str, is_wanted: Callable[[str], bool] | None = None) -> Columns:
    """A table of numbers by column. ``is_wanted``: whether a column is to be read; None for all.

    Empty cells are NaN. Incomplete lines, as a killed writer leaves them, are skipped. Arrays take a quarter of the
    memory of lists.
    """
    if not text:
        return {}
    first, *lines = text[: text.rfind("\n") + 1].split("\n")
    header, lines = first.strip().split(","), lines[:-1]
    wanted = {sys.intern(name): at for at, name in enumerate(header) if is_wanted is None or is_wanted(name)}
    if not lines:
        return {name: array("d") for name in wanted}
    if {*map(methodcaller("count", ","), lines)} == {len(header) - 1}:
        cells = ",".join(lines).split(",")
        with suppress(ValueError):  # twice as fast
            return {name: array("d", map(float, cells[index :: len(header)])) for name, index in wanted.items()}
    rows = []
    for cells in (line.split(",") for line in lines):
        with suppress(ValueError):
            if len(cells) == len(header):
                rows.append([float(cell or "nan") for cell in cells])
    return {name: array("d", [row[index] for row in rows]) for name, index in wanted.items()}


def read_overrides(path: Path) -> list[str] | None:
    """The overrides typed for a job, from Hydra's record; None if there is none."""
    try:
        content = yaml_text.parse(read_text(path / ".hydra" / "overrides.yaml"))
    except Exception:  # YAML's constructors raise anything
        return None
    return [printable(override) for override in content] if isinstance(content, list) else None


def _mapping(text: str | None) -> dict[str, Any]:
    try:
        content = parse_json(text or "")
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
