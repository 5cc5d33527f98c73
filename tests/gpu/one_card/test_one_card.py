"""What the scripts for one card decide by themselves; ``tests/gpu/one_card.sh --rehearse`` makes all of their runs."""

import os
import struct
import subprocess
import time
from pathlib import Path

import pytest

from tests.gpu.one_card import apex, card, faults, hazards, matrix, runs, slim_nccl, speed, waits
from tests.gpu.one_card.card import OVER_GLOO, STRATEGIES, Card
from tests.gpu.one_card.findings import FAILED, LEFT_OUT, PASSED, ROOT, Findings
from tests.gpu.one_card.runs import Outcome, Run
from tests.gpu.one_card.turns import BY_HAND, DDP, OURS, Times

PARTS = (hazards, waits, faults, apex)


def outcomes(findings):
    return {outcome for _, outcome, _ in findings.rows}


@pytest.fixture
def real(tmp_path):
    return Card(4, "nccl", tmp_path, rehearses=False)


@pytest.fixture
def few(monkeypatch):
    """Two strategies in one precision."""
    strategies = {name: STRATEGIES[name] for name in ("ddp", "mesh, shard x tensor")}
    for module in (card, matrix):
        monkeypatch.setattr(module, "STRATEGIES", strategies)
        monkeypatch.setattr(module, "PRECISIONS", {"fp64": ("precision=fp64",)})


@pytest.mark.usefixtures("few")
def test_overrides_are_composed_as_on_a_gpu(real):
    findings = Findings()
    runs.check_overrides(real, matrix.composed_only(real), findings)
    assert outcomes(findings) == {PASSED}


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("missing", ["parallel.tensor=2", "parallel=ddp"])
def test_a_missing_override_fails_the_rehearsal(real, missing):
    known = matrix.composed_only(real)
    cut = [Run(run.name, tuple(o for o in run.overrides if o != missing)) for run in known]
    findings = Findings()
    runs.check_overrides(real, cut, findings)
    assert outcomes(findings) == {FAILED}


@pytest.mark.ci
@pytest.mark.processes
@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("missing", [None, "task=language_model", "data.batch_size=32"])
def test_an_override_that_only_runs_need(tmp_path, monkeypatch, missing):
    common = Card.common
    monkeypatch.setattr(Card, "common", lambda card: tuple(o for o in common(card) if o != missing))
    monkeypatch.setattr(matrix, "REHEARSED", [("ddp", "fp64")])
    rehearsing, findings = Card(2, "gloo", tmp_path, rehearses=True), Findings()
    found = runs.perform(rehearsing, matrix.runs(rehearsing, ["fp64"]))
    matrix.compare(rehearsing, ["fp64"], found, findings)
    assert findings.code == (missing is not None), findings.rows


@pytest.mark.parametrize(
    ("ranks", "backend", "count"), [(2, "nccl", 3), (4, "gloo", len(STRATEGIES) - len(OVER_GLOO)), (4, "nccl", 0)]
)
def test_strategies_that_drop_out_are_named(tmp_path, ranks, backend, count):
    some, findings = Card(ranks, backend, tmp_path, rehearses=False), Findings()
    matrix.leave_out(some, findings)
    assert [row[1] for row in findings.rows] == [LEFT_OUT] * count
    left = {run.name for run in matrix.runs(some, ["fp64"])}
    assert len(left) == len(STRATEGIES) - count + 1
    for part in (hazards, waits):
        findings = Findings()
        part.conclude(some, {run.name: Outcome("it failed") for run in part.runs(some)}, findings)
        assert outcomes(findings) <= {FAILED, LEFT_OUT}
        assert any(row[1] == LEFT_OUT for row in findings.rows) == (backend == "gloo")


def test_gloo_serves_each_strategy_of_its_list(tmp_path):
    some = Card(4, "gloo", tmp_path, rehearses=False)
    assert all("parallel.backend=gloo" in some.strategy(name) for name in OVER_GLOO)


def test_what_the_minutes_leave_no_time_for_drops_out(real):
    findings = Findings()
    matrix.compare(real, ["fp64"], {run.name: None for run in matrix.runs(real, ["fp64"])}, findings)
    assert outcomes(findings) == {LEFT_OUT}
    over = Card(4, "nccl", real.folder, rehearses=False, ends=time.time())
    faults.check(over, findings)
    assert outcomes(findings) == {LEFT_OUT}
    assert runs.perform(over, []) == {}


@pytest.mark.parametrize(
    ("loss", "held", "outcome"),
    [(1 + 1e-12, "", PASSED), (1.01, "", FAILED), (1.0, "rank 0 held 1 byte", FAILED), (None, "", FAILED)],
)
def test_losses_and_memory_are_compared(real, monkeypatch, loss, held, outcome):
    monkeypatch.setattr(matrix, "losses", lambda _, run: [1.0] * 4 if "single" in run.name else [loss] * 4 * bool(loss))
    findings = Findings()
    found = {run.name: Outcome("", held if "single" not in run.name else "") for run in matrix.runs(real, ["fp64"])}
    matrix.compare(real, ["fp64"], found, findings)
    assert {row[1] for row in findings.rows if not row[0].startswith("local_sgd")} == {outcome}


@pytest.mark.parametrize(
    ("hand", "ours", "ddp", "expected"),
    [
        ([1.0, 1.01], [1.02, 1.02], [1.03, 1.03], [PASSED, PASSED]),
        ([1.0, 1.01], [1.02, 1.02], [1.06, 1.06], [PASSED, FAILED]),
        ([1.0, 1.01], [1.04, 1.04], [1.04, 1.04], [FAILED, PASSED]),
        ([1.0, 1.03], [1.5, 1.5], [1.5, 1.5], [LEFT_OUT, LEFT_OUT]),
    ],
)
def test_speed_is_judged_where_clocks_are_steady(tmp_path, monkeypatch, hand, ours, ddp, expected):
    session = speed.Session(tmp_path, seconds=1000, rehearses=False)
    monkeypatch.setattr(speed.isolated, "call", lambda *_, **__: Times({BY_HAND: hand, OURS: ours, DDP: ddp}))
    session.turns("GPT", lambda **_: None, compiles=False)
    assert [row[1] for row in session.findings.rows] == expected


def test_speed_that_there_is_no_time_for_drops_out(tmp_path):
    session = speed.Session(tmp_path, seconds=5, rehearses=False)
    session.turns("GPT", lambda **_: None, compiles=True)
    session.copies()
    assert outcomes(session.findings) == {LEFT_OUT}


PYTHON = """#!/usr/bin/env bash
case "$*" in
    *one_card.smoke*) [[ " $WORKING " == *" ${CUDA_MPS_PIPE_DIRECTORY:+mps-}$4 "* ]] ;;
    *one_card.correctness*) echo "ranks on a GPU: $MANYHEADS_RANKS_PER_GPU; $*" ;;
esac
"""
MPS = '#!/usr/bin/env bash\n[ "$*" = -d ] && echo begun >> "$CALLS" || cat >> "$CALLS"\n'


@pytest.mark.parametrize(
    ("working", "said", "mps"),
    [
        ("4 2", "ranks on a GPU: 4;*--backend nccl --way NCCL --seconds", ""),
        ("2", "ranks on a GPU: 2;*--backend nccl --way NCCL --seconds", ""),
        ("mps-4", "ranks on a GPU: 4;*--backend nccl --way NCCL under MPS; without it NCCL failed", "begun\nquit\n"),
        ("", "ranks on a GPU: 4;*--backend gloo --way NCCL failed, also under MPS: see smoke", "begun\nquit\n"),
    ],
)
def test_nccl_then_mps_then_gloo(tmp_path, working, said, mps):
    for name, text in {"python": PYTHON, "nvidia-cuda-mps-control": MPS}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    calls = tmp_path / "calls"
    calls.touch()
    own = {"PYTHON": str(tmp_path / "python"), "OUT": str(tmp_path / "out"), "CALLS": str(calls), "WORKING": working}
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = subprocess.run(
        [ROOT / "tests/gpu/one_card.sh", "d1"], env={**os.environ, **own, "PATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    before, after = said.split("*", 1)
    line = next(line for line in done.stdout.splitlines() if line.startswith(before))
    assert after in line
    assert calls.read_text() == mps


def test_nothing_checked_is_a_failure():
    assert Findings().code == 1


def test_an_error_with_brackets_is_shown_as_it_is(capsys):
    findings = Findings()
    findings.note("a hung rank", PASSED, "[/gloo/buffer.cc:78] Timed out waiting")
    findings.show("D1")
    assert "[/gloo/buffer.cc:78] Timed out waiting" in capsys.readouterr().out.partition("check")[2]


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
