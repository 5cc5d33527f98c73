"""Images that anybody may have sent claim no more memory and time than their files are worth."""

import resource
import struct
import zlib
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image

from manyheads.runner.data.rank.image_file import opened
from manyheads.runner.data.rank.photos import Photos, Picture
from manyheads.runner.data.samples import CorruptSample
from tests.checkpoint.ranks import Rank, together

MEMORY = 100_000_000  # bytes; a PNG of 67 took 2.7 GB


def png(height: int, width: int) -> bytes:
    """A grey PNG of one bit per pixel, that claims this size and has no pixels."""
    size = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    chunks = ((b"IHDR", size), (b"IDAT", zlib.compress(b"")), (b"IEND", b""))
    parts = [
        (struct.pack(">I", len(data)), kind, data, struct.pack(">I", zlib.crc32(kind + data))) for kind, data in chunks
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(map(b"".join, parts))


def saved(kind: str, mode: str = "L", **options) -> bytes:
    Image.new(mode, (64, 64)).save(file := BytesIO(), kind, **options)
    return file.getvalue()


def jpeg(height: int, width: int, *, scans: int = 0, mode: str = "L", **options) -> bytes:
    """A JPEG that claims this size; ``scans``: how often its last scan is repeated."""
    content = saved("JPEG", mode, **options)
    last = content[content.rindex(b"\xff\xda") : -2]
    content = bytearray(content[:-2] + last * scans + content[-2:])
    frame = content.index(b"\xff\xc2" if options else b"\xff\xc0") + 5
    content[frame : frame + 4] = struct.pack(">HH", height, width)
    return bytes(content)


def tiff(height: int, width: int) -> bytes:
    """An uncompressed grey TIFF that claims this size, and has one row."""
    tags = {256: width, 257: height, 258: 8, 259: 1, 262: 1, 273: 8, 277: 1, 278: height, 279: height * width}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    return struct.pack("<2sHI", b"II", 42, 8) + struct.pack("<H", len(tags)) + entries + bytes(4)


BOMBS = {
    "png": png(13_000, 13_000),
    "gif": saved("GIF")[:6] + struct.pack("<HH", 13_000, 13_000) + saved("GIF")[10:],
    "ppm": b"P5 13000 13000 255\n",
    "tiff": tiff(13_000, 13_000),
    "jpeg": jpeg(13_000, 13_000),
    "cmyk": jpeg(13_000, 13_000, mode="CMYK"),
    "scans": jpeg(1000, 1000, scans=400, progressive=True),
}


def ask_within_limits(tmp_path: Path, ask: Callable[[str, str], None]) -> None:
    """Call ``ask`` with the path of each bomb and what must be said of it, in a process with little memory."""
    for kind, content in BOMBS.items():
        (tmp_path / kind).write_bytes(content)

    def work(_: Rank) -> None:
        with open("/proc/self/status") as file:
            used = next(int(line.split()[1]) for line in file if line.startswith("VmData")) * 1024
        resource.setrlimit(resource.RLIMIT_DATA, (used + MEMORY,) * 2)
        for kind in BOMBS:
            says = (
                "406 scans; it may have 100" if kind == "scans" else "13000 x 13000 pixels; a file of .* bytes may have"
            )
            ask(str(tmp_path / kind), says)

    assert together(1, work, tmp_path / "meeting") == [0], [
        path.read_text() for path in (tmp_path / "meeting").glob("error*")
    ]


def test_a_bomb_is_refused_with_its_name_before_it_takes_memory(tmp_path):
    def ask(path: str, says: str) -> None:
        with pytest.raises(CorruptSample, match=says) as caught:
            Photos([path], [0], image_size=8, train=True)[0]
        assert caught.value.path == path

    ask_within_limits(tmp_path, ask)


@pytest.mark.parametrize("content", [jpeg(15_000, 20_000), tiff(15_000, 20_000)], ids=["jpeg", "tiff"])
def test_a_photo_of_300_megapixels_passes(content):
    content += bytes(3_000_000)
    if content[:2] == b"II":
        with opened(content) as image:
            assert image.size == (20_000, 15_000)
    else:
        assert Picture(content).height == 15_000


def test_a_progressive_photo_passes():
    assert Picture(saved("JPEG", "RGB", progressive=True)).decoded().shape == (3, 64, 64)


def test_what_looks_like_scans_behind_a_photo_does_not_count():
    """As in the film that a telephone appends to it."""
    assert Picture(saved("JPEG") + b"\xff\xda" * 400).decoded().shape == (3, 64, 64)
