"""What GPUs can compute at most, by the formats of the products, as their makers state it: dense, without sparsity.

Sources, all https://www.nvidia.com/en-us/data-center/ unless named: h200, h100, a100, l40s, l4, v100, tesla-t4,
products/a10-gpu, products/a40; for GeForce the whitepapers of the Ada and Ampere GA102 architectures (fp16 with
accumulation in fp32).
"""

import re

TERA = 1e12
# By the first pattern that the device's name has. "half": fp16 and bf16; None: no units of that kind.
PEAKS: dict[str, dict[str, float | None]] = {
    r"H100 PCIe": {"half": 756, "tf32": 378, "fp32": 51, "fp64": 51},
    r"H100 NVL": {"half": 835, "tf32": 417, "fp32": 60, "fp64": 60},
    r"H100|H200|GH200": {"half": 989, "tf32": 494, "fp32": 67, "fp64": 67},
    r"A100": {"half": 312, "tf32": 156, "fp32": 19.5, "fp64": 19.5},
    r"A40\b": {"half": 149.7, "tf32": 74.8, "fp32": 37.4, "fp64": None},
    r"A10\b": {"half": 125, "tf32": 62.5, "fp32": 31.2, "fp64": None},
    r"L40S": {"half": 362, "tf32": 183, "fp32": 91.6, "fp64": None},
    r"L4\b": {"half": 121, "tf32": 60, "fp32": 30.3, "fp64": None},
    r"V100.SXM2": {"half": 125, "tf32": None, "fp32": 15.7, "fp64": 7.8},
    r"V100.PCIE": {"half": 112, "tf32": None, "fp32": 14, "fp64": 7},
    r"\bT4\b": {"half": 65, "tf32": None, "fp32": 8.1, "fp64": None},
    r"RTX 4090\b(?! (?:D|Laptop))": {"half": 165.2, "tf32": 82.6, "fp32": 82.6, "fp64": None},
    r"RTX 3090\b(?! Ti)": {"half": 71, "tf32": 35.6, "fp32": 35.6, "fp64": None},
}


def peak(device: str, products: str) -> float | None:
    """FLOP/s of products in a format: half, tf32, fp32 or fp64; None where nobody has stated it here.

    ``device``: its name by the driver. A slice by MIG is not the whole, and has none.
    """
    if "MIG" in device:
        return None
    stated = next((found for pattern, found in PEAKS.items() if re.search(pattern, device)), {})
    tera = stated.get(products)
    return None if tera is None else tera * TERA
