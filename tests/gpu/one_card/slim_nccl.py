"""libnccl.so.2 with the machine code of one kind of GPU only, compressed: 14 MiB instead of 250. ``SOURCE TARGET``.

What is left out is zeroed in place, so that every offset stays. PTX is left out as well: other GPUs cannot run it.
"""

import ctypes
import struct
import sys
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

ARCHITECTURE = 90  # sm_90: H100, H200
OLDEST = 23000  # NCCL 2.30, the first with NCCL_MULTI_RANK_GPU_ENABLE
FATBIN, MACHINE_CODE = 0xBA55ED50, 2


def sections(image: bytearray) -> Iterator[tuple[str, int, int]]:
    """Name, offset and size of each section of a 64-bit ELF file."""
    if image[:5] != b"\x7fELF\x02":
        raise SystemExit("error: this is no 64-bit library")
    table = struct.unpack_from("<Q", image, 0x28)[0]
    size, count, names = struct.unpack_from("<HHH", image, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", image, table + number * size) for number in range(count)]
    start = headers[names][4]
    for header in headers:
        first = start + header[0]
        yield bytes(image[first : image.index(0, first)]).decode(), header[4], header[5]


def keep_one(image: bytearray, start: int, end: int) -> int:
    """Zero the code for other architectures in the section from ``start`` to ``end``; the bytes that are kept."""
    position, kept = start, 0
    while position < end:
        if struct.unpack_from("<I", image, position)[0] != FATBIN:
            position += 8
            continue
        header, length = struct.unpack_from("<HQ", image, position + 6)
        entry, stop = position + header, position + header + length
        while entry < stop:
            kind, _, header, size = struct.unpack_from("<HHIQ", image, entry)
            architecture = struct.unpack_from("<I", image, entry + 28)[0]
            if (kind, architecture) == (MACHINE_CODE, ARCHITECTURE):
                kept += size
            else:
                image[entry + header : entry + header + size] = bytes(size)
            entry += header + size
        position = stop
    return kept


def version(library: Path) -> int:
    """What the library says of itself, such as 23007: it still loads."""
    number = ctypes.c_int()
    if ctypes.CDLL(str(library)).ncclGetVersion(ctypes.byref(number)):
        raise SystemExit(f"error: {library} does not say its version")
    return number.value


def main(source: Path, target: Path) -> None:
    image, kept = bytearray(source.read_bytes()), 0
    for name, start, size in [*sections(image)]:
        if name == "__nv_relfatbin" or name.startswith(".debug"):
            image[start : start + size] = bytes(size)
        elif name == ".nv_fatbin":
            kept += keep_one(image, start, start + size)
    if not kept:
        raise SystemExit(f"error: {source} has no code for sm_{ARCHITECTURE}")
    with tempfile.TemporaryDirectory() as folder:
        slim = Path(folder) / "libnccl.so.2"
        slim.write_bytes(image)
        if (number := version(slim)) < OLDEST:
            raise SystemExit(f"error: {source} is NCCL {number}; {OLDEST} or newer is needed")
    target.write_bytes(zlib.compress(image, 6))
    print(
        f"NCCL {number}: {len(image) >> 20} MiB, of which {kept >> 20} are for sm_{ARCHITECTURE}; "
        f"{target.stat().st_size >> 20} MiB compressed"
    )


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]))
