"""Stand-ins for CUDA's libraries: a CUDA build of torch is imported, and trains on the CPU, without 3 GB of them.

For tests only. Each is a library of the right name that defines what torch's own leave undefined; every call fails as
one does on a machine without a GPU.
"""

import re
import subprocess
from collections import defaultdict
from pathlib import Path

NO_DEVICE = 100
OF_CUDA = re.compile(r"lib(cu\w+|nccl|nv\w+)\.so")
# Whose symbols are that do not say so by a version that is a library's name, by how they begin.
OWNERS = {
    "nvshmem": "libnvshmem_host.so",
    "cusparseLt": "libcusparseLt.so",
    "nccl": "libnccl.so",
    "cudnn": "libcudnn.so",
    "cuFile": "libcufile.so",
    "cupti": "libcupti.so",
    "cu": "libcuda.so",
}


def make(libraries: list[Path], folder: Path) -> None:
    """Write into ``folder`` what the shared ``libraries`` need of CUDA. Needs gcc and readelf."""
    wanted: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for name in (name for library in libraries for name in needed(library)):
        wanted[name]  # also one of which nothing is used
    for symbol, version in (found for library in libraries for found in undefined(library)):
        if OF_CUDA.match(version):
            wanted[version].add((symbol, version))
        elif owner := next((owner for prefix, owner in OWNERS.items() if symbol.startswith(prefix)), None):
            for name in [name for name in wanted if name.startswith(owner)]:
                wanted[name].add((symbol, version))
    for name, symbols in wanted.items():
        compile_stub(folder, name, symbols)


def needed(library: Path) -> list[str]:
    said = subprocess.run(["readelf", "-Wd", library], capture_output=True, text=True, check=True).stdout
    return [name for name in re.findall(r"\(NEEDED\).*\[(.+)\]", said) if OF_CUDA.match(name)]


def undefined(library: Path) -> list[tuple[str, str]]:
    """Symbols with their versions, or ""."""
    said = subprocess.run(["readelf", "-W", "--dyn-syms", library], capture_output=True, text=True, check=True).stdout
    return re.findall(r"\bUND ([A-Za-z_]\w*)(?:@([\w.]+))?", said)


def compile_stub(folder: Path, name: str, symbols: set[tuple[str, str]]) -> None:
    source, script = folder / f"{name}.c", folder / f"{name}.map"
    source.write_text("".join(f"int {symbol}(void) {{ return {NO_DEVICE}; }}\n" for symbol, _ in sorted(symbols)))
    versions = sorted({version for _, version in symbols if version})
    script.write_text("".join(f"{version} {{ global: *; }};\n" for version in versions))
    flags = ["-shared", "-fPIC", "-w", f"-Wl,-soname,{name}", "-o", str(folder / name)]
    flags += [f"-Wl,--version-script,{script}"] if versions else []
    subprocess.run(["gcc", *flags, str(source)], check=True)
