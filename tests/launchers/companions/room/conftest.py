"""A folder of claims, and claims on the cores of a machine with two."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from manyheads.launchers.companions.room.claims import Claim, boot_id
from manyheads.launchers.companions.room.registry import Lease, Registry


@pytest.fixture
def leases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "leases"
    monkeypatch.setenv("MANYHEADS_LEASES", str(path))
    return path


@pytest.fixture
def registry(leases: Path) -> Iterator[Registry]:
    with Registry.created() as registry:
        yield registry


def claim(count: int = 1, *, run: str = "/outputs/a", among: tuple[str, ...] = ("0", "1")) -> Claim:
    return Claim(run, 1, 0.0, boot_id(), "core", count, among)


def added(registry: Registry, made: Claim) -> Lease:
    with registry.turn() as claims:
        return registry.add(made, claims)


def numbers(registry: Registry) -> list[int]:
    with registry.turn() as claims:
        return [one.number for one in claims]
