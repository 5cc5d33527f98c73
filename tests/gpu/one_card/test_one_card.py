"""What the scripts for one card decide by themselves; ``tests/gpu/one_card.sh --rehearse`` makes all of their runs."""

import struct
from pathlib import Path

import pytest

from tests.gpu.one_card import matrix, slim_nccl
from tests.gpu.one_card.findings import FAILED, LEFT_OUT, Findings
from tests.gpu.one_card.matrix import STRATEGIES, Card


@pytest.fixture
def card(tmp_path):
    return Card(4, "gloo", tmp_path, rehearses=True)


@pytest.fixture
def few(monkeypatch):
    """Two strategies in one precision."""
    monkeypatch.setattr(matrix, "STRATEGIES", {name: STRATEGIES[name] for name in ("ddp", "mesh, shard x tensor")})
    monkeypatch.setattr(matrix, "PRECISIONS", {"fp64": ("precision=fp64",)})


@pytest.mark.usefixtures("few")
def test_overrides_are_composed_as_on_a_gpu(card):
    findings = Findings()
    matrix.check_overrides(card, findings)
    assert findings.code == 0, findings.rows


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("missing", ["parallel.tensor=2", "parallel=ddp"])
def test_a_missing_override_fails_the_rehearsal(card, monkeypatch, missing):
    whole = Card.overrides
    monkeypatch.setattr(Card, "overrides", lambda *case: tuple(o for o in whole(*case) if o != missing))
    findings = Findings()
    matrix.check_overrides(card, findings)
    assert findings.code == 1
    assert {outcome for _, outcome, _ in findings.rows} == {FAILED}


@pytest.mark.ci
@pytest.mark.processes
@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("missing", [None, "task=language_model", "data.batch_size=32"])
def test_an_override_that_only_runs_need(tmp_path, monkeypatch, missing):
    whole = Card.common
    monkeypatch.setattr(Card, "common", lambda card: tuple(o for o in whole(card) if o != missing))
    monkeypatch.setattr(matrix, "REHEARSED", [("ddp", "fp64")])
    findings = Findings()
    matrix.compare(Card(2, "gloo", tmp_path, rehearses=True), findings)
    assert findings.code == (missing is not None), findings.rows


def test_strategies_that_drop_out_are_named(monkeypatch, tmp_path):
    monkeypatch.setattr(matrix, "execute", lambda *command, **_: 1)
    monkeypatch.setattr(matrix, "last_line", lambda log: "no GPU")
    for ranks, backend, count in ((2, "nccl", 3), (4, "gloo", len(STRATEGIES) - len(matrix.OVER_GLOO)), (4, "nccl", 0)):
        findings = Findings()
        matrix.compare(Card(ranks, backend, tmp_path, rehearses=False), findings)
        assert sum(outcome == LEFT_OUT for _, outcome, _ in findings.rows) == count
        assert sum(outcome == FAILED for _, outcome, _ in findings.rows) == 3 * (len(STRATEGIES) - count) + 3
        assert findings.code == 1


def test_nothing_checked_is_a_failure():
    assert Findings().code == 1


def test_only_one_kind_of_machine_code_is_kept():
    def entry(kind: int, architecture: int) -> bytes:
        header = struct.pack("<HHIQ", kind, 0, 64, 16) + bytes(12) + struct.pack("<I", architecture)
        return header.ljust(64, b"\0") + b"c" * 16

    entries = b"".join(entry(*pair) for pair in ((2, 80), (2, 90), (1, 90), (2, 100)))
    image = bytearray(bytes(8) + struct.pack("<IHHQ", slim_nccl.FATBIN, 1, 16, len(entries)) + entries)
    size = len(image)
    assert slim_nccl.keep_one(image, 0, size) == 16
    assert len(image) == size
    assert image.count(b"c" * 16) == 1
    assert image[24 + 80 + 64 : 24 + 160] == b"c" * 16


def test_what_is_no_library_is_refused(tmp_path):
    path = Path(tmp_path / "text")
    path.write_text("no library" * 10)
    with pytest.raises(SystemExit, match="no 64-bit library"):
        slim_nccl.main(path, tmp_path / "target")
