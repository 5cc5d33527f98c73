"""The installed parts of NVIDIA Apex, found without importing it, since that imports torch.

``apex.amp`` and ``apex.parallel`` were removed on 2025-05-08 (https://github.com/NVIDIA/apex, commit cb65b8ed): tag
25.05 is the last with them, 25.07 has the fused optimizers only. The package called apex on PyPI is another project.
"""

import importlib.util
from importlib import metadata
from pathlib import Path

from manyheads.runner.errors import Unavailable
from manyheads.runner.machine import hardware

PARTS = ("amp", "parallel", "optimizers")
BUILD = (
    "git clone --branch 25.05 https://github.com/NVIDIA/apex && pip install --no-build-isolation "
    "--config-settings --build-option=--cpp_ext --config-settings --build-option=--cuda_ext ./apex"
)
NATIVE = {
    "amp": "precision=amp with precision.level=O1 or O2, as Apex counts them, or precision=fp32 (its O0)",
    "parallel": "parallel=ddp, with parallel.sync_batchnorm=true for its SyncBatchNorm",
    "optimizers": "optimizer=sgd, adam or adamw",
}
ON_A_GPU_MACHINE = "on a machine with an NVIDIA GPU and nvcc"


def unavailable(part: str) -> str | None:
    """Why ``apex.<part>`` can't be used here, how to get it and what to use instead; None if it can be used."""
    missing = _lacking(part)
    if hardware.gpu_names():
        causes, remedy = ([missing[0]], missing[1]) if missing else ([], "")
    else:
        causes = [*([missing[0]] if missing else []), f"{hardware.NO_GPU}, which Apex needs"]
        remedy = missing[1] if missing else "Run it on a machine that has one"
    return f"{', and '.join(causes)}. {remedy}. Or use {NATIVE[part]}" if causes else None


def note() -> str:
    """A warning about an option of Apex that can run; empty if there is none."""
    return "" if has_kernels() else "slower than it could be: Apex was built without its CUDA extensions"


def refuse_cpu(device: str, chosen: str, part: str) -> None:
    """Raises Unavailable if the option ``chosen``, which uses ``apex.<part>``, would run on a CPU."""
    if device == "cpu":
        raise Unavailable.at(
            "trainer.device", "cpu", f": {chosen} works on GPUs only. Set trainer.device=cuda, or use {NATIVE[part]}."
        )


def description() -> str | None:
    """The version of NVIDIA Apex with the parts that it has, or None if it is not installed."""
    folder = _folder()
    if folder is None or not _is_nvidias(folder):
        return None
    parts = [part for part in PARTS if _has(folder, part)]
    return f"{_version().strip() or 'unknown'} with {', '.join(parts) or 'nothing of use'}" + (
        "" if has_kernels() else ", without its CUDA extensions"
    )


def has_kernels() -> bool:
    """Whether Apex was built with its CUDA extensions, which ``--cuda_ext`` installs beside the package."""
    return importlib.util.find_spec("amp_C") is not None


def _lacking(part: str) -> tuple[str, str] | None:
    """The missing part of the installation, and the remedy."""
    folder = _folder()
    if folder is None:
        return "NVIDIA Apex is not installed", f"Build it {ON_A_GPU_MACHINE}: `{BUILD}`"
    if not _is_nvidias(folder):
        return (
            f"the installed apex{_version()} is the web toolkit of that name from PyPI, not NVIDIA Apex",
            f"Remove it with `pip uninstall apex`, and build NVIDIA's {ON_A_GPU_MACHINE}: `{BUILD}`",
        )
    if not _has(folder, part):
        return (
            f"the installed NVIDIA Apex has no apex.{part}: tag 25.05 was the last to have it",
            f"Remove it with `pip uninstall apex`, and build that tag {ON_A_GPU_MACHINE}: `{BUILD}`",
        )
    if part == "optimizers" and not has_kernels():
        return (
            "the installed NVIDIA Apex was built without its CUDA extensions, which its optimizers need",
            f"Remove it with `pip uninstall apex`, and build it with them {ON_A_GPU_MACHINE}: `{BUILD}`",
        )
    return None


def _folder() -> Path | None:
    spec = importlib.util.find_spec("apex")  # a mere folder of that name, such as Apex's clone, has no origin
    return Path(spec.origin).parent if spec is not None and spec.origin is not None else None


def _is_nvidias(folder: Path) -> bool:
    return (folder / "multi_tensor_apply").is_dir()


def _has(folder: Path, part: str) -> bool:
    return (folder / part / "__init__.py").is_file()


def _version() -> str:
    try:
        return f" {metadata.version('apex')}"
    except metadata.PackageNotFoundError:
        return ""
