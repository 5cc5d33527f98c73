"""What the processor can compute natively, found without importing torch."""

import re
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
# The kernel's flag for products of bfloat16, by what makers call it; on Arm the flag has its name.
BFLOAT16 = {"amx_bf16": "AMX", "avx512_bf16": "AVX-512-BF16", "bf16": "bf16"}
EMULATED = "this processor has no bfloat16 instructions (AVX-512-BF16, AMX), and emulates them"


def bfloat16() -> str | None:
    """The instructions for products of bfloat16; None if there are none, so that they are emulated, which is slow."""
    try:
        text = CPUINFO.read_text()
    except OSError:
        return None
    found = re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE)
    flags = set(found[1].split()) if found else set()
    return next((name for flag, name in BFLOAT16.items() if flag in flags), None)
