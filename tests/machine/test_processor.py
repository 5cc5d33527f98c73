"""What the kernel says of the processor."""

import pytest

from manyheads.runner.machine import hardware


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("flags\t\t: fpu avx2 avx512f avx512_bf16 rdpid", "AVX-512-BF16"),
        ("flags\t\t: fpu avx512_bf16 amx_bf16 amx_tile", "AMX"),
        ("Features\t: fp asimd bf16 i8mm", "bf16"),
        ("flags\t\t: fpu avx2 avx512f", None),
        ("Features\t: fp asimd", None),
        ("", None),
    ],
)
def test_instructions_for_bfloat16(tmp_path, monkeypatch, text, found):
    file = tmp_path / "cpuinfo"
    file.write_text(f"processor\t: 0\n{text}\n")
    monkeypatch.setattr(hardware, "CPUINFO", file)
    assert hardware.bfloat16() == found


def test_no_such_file(tmp_path, monkeypatch):
    monkeypatch.setattr(hardware, "CPUINFO", tmp_path / "missing")
    assert hardware.bfloat16() is None
