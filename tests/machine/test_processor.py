"""What the kernel says of the processor."""

import pytest

from manyheads.runner.machine import processor


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
    monkeypatch.setattr(processor, "CPUINFO", file)
    assert processor.bfloat16() == found


def test_no_such_file(tmp_path, monkeypatch):
    monkeypatch.setattr(processor, "CPUINFO", tmp_path / "missing")
    assert processor.bfloat16() is None
