"""What tests of the core ask of wings that a tree may be without: the rest of such a test is skipped there."""

from pathlib import Path
from typing import Any

import pytest


def require_wing(module: str) -> Any:
    """The module of a wing."""
    return pytest.importorskip(module)


def audit(folder: str | Path, *, reads_data: bool = False) -> Any:
    """What ``manyheads audit`` says of a run, without ``reads_data`` by its records alone."""
    wing = pytest.importorskip("manyheads.runner.answers.audit.audit_run")
    return wing.audit(str(folder), reads_data=reads_data)


def load(run: str | Path, *, which: str | None = None) -> Any:
    """The trained model of a run. ``which``: its best or last weights."""
    return pytest.importorskip("manyheads.runner.serve.rank.trained").load(run, which=which)


def convert(checkpoint: Path, to: str, out: Path) -> Path:
    """The checkpoint in another format. ``out``: without the suffix of its format."""
    wing = pytest.importorskip("manyheads.runner.checkpoint.rank.convert_checkpoint")
    path: Path = wing.convert(checkpoint, to, out.with_name(f"{out.name}{wing.SUFFIXES[to]}"))
    return path
