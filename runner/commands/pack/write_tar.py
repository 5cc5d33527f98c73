"""Writes images as tar shards in webdataset's convention, with an index beside them; read by data=tar."""

import re
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath

from manyheads.runner.commands.pack.answer import Settings, Written
from manyheads.runner.commands.pack.destination import Destination
from manyheads.runner.data.data_option import Data
from manyheads.runner.data.links import content_of
from manyheads.runner.data.samples import ImageFiles
from manyheads.runner.data.shards.index import CONTENTS, ShardFile
from manyheads.runner.data.tar import CLASS, CLASS_NAMES, IMAGES
from manyheads.runner.data.tar.index import TarTable
from manyheads.runner.data.tar.walk import BLOCK, members
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.files import whole_file, write_whole
from manyheads.runner.run.progress import Work, working

# The first bytes of image formats, and their suffixes; Photos decodes images regardless of their names.
FORMATS = {b"\xff\xd8\xff": "jpg", b"\x89PNG": "png", b"GIF8": "gif", b"BM": "bmp", b"RIFF": "webp", b"P6": "ppm"}
FORMATS |= {b"II*\0": "tif", b"MM\0*": "tif", b"P5": "pgm"}
Sample = tuple[str, bytes, int]  # name, content of the image, class number


def write_tar(splits: Mapping[str, ImageFiles], out: Destination, settings: Settings, data: Data) -> Written:
    """Write shards <split>-000000.tar and classnames.txt.

    Samples keep their order unless they are shuffled, and images their bytes unless they are resized. Raises
    ConfigurationError for an image that cannot be read.
    """
    sizes = {name: len(samples.paths) for name, samples in splits.items()}
    growing, all_resized = TarTable(checked=CONTENTS), 0
    with working("packing", sum(sizes.values())) as work:
        for split in sorted(splits):  # as an index lists shards
            for name, resized in _shards(split, splits[split], out.folder, settings, work):
                shard = ShardFile(name, (out.folder / name).stat().st_size, ())
                growing.add_shard(out.folder, shard, members)  # reads back everything that was written
                out.finish(name)
                all_resized += resized
    if classes := splits["train"].classes:
        write_whole(out.folder / CLASS_NAMES, "".join(f"{name}\n" for name in classes))
        out.finish(CLASS_NAMES)
    return Written(sizes, len(growing.shards), all_resized, growing.index(out.folder))


def _shards(split: str, samples: ImageFiles, folder: Path, settings: Settings, work: Work) -> Iterator[tuple[str, int]]:
    """Write the shards of a split; after each, its name and the number of resized images."""
    waiting = _images(samples, _order(len(samples.paths), settings.shuffle if split == "train" else None))
    sample, number = next(waiting, None), 0
    while sample is not None:
        name, resized = f"{split}-{number:06d}.tar", 0
        with whole_file(folder / name) as file:
            written = 0
            # 4 * BLOCK: the headers of both files of a sample, and what fills their last blocks
            while sample is not None and (not written or written + 4 * BLOCK + len(sample[1]) <= settings.shard_size):
                key, content, target = sample
                if settings.resize is not None:
                    from manyheads.runner.commands.pack.rank import scaled  # imports torch

                    smaller = scaled(content, settings.resize, settings.quality, name=key)
                    resized, content = resized + (smaller is not None), content if smaller is None else smaller
                for field, part in ((_format(content, key), content), (CLASS, str(target).encode())):
                    written += file.write(_member(f"{_key(key)}.{field}", part))
                work.advance()
                sample = next(waiting, None)
            file.write(bytes(2 * BLOCK))
        yield name, resized
        number += 1


def _order(size: int, seed: int | None) -> Sequence[int]:
    import numpy as np

    return range(size) if seed is None else np.random.RandomState(seed).permutation(size).tolist()


def _images(samples: ImageFiles, order: Sequence[int]) -> Iterator[Sample]:
    """Name, content and class number of each image. Raises ConfigurationError."""
    for number, index in enumerate(order):
        image, name = samples.paths[index], f"{number:08d}"
        called = "" if isinstance(image, bytes) else f"_{PurePath(image).name}"
        yield f"{name}{called}", _content(image, samples.within), int(samples.targets[index])


def _content(image: str | bytes, within: str | None) -> bytes:
    if isinstance(image, bytes):
        return image
    try:
        return content_of(image, within=within)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{image} cannot be read ({error}). Repair or remove it.") from None


def _key(name: str) -> str:
    """A sample's key as the convention requires, without dots; it contains the file's name, to find that again."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", PurePath(name).stem)[:80]


def _format(content: bytes, name: str) -> str:
    """The field of an image: by its first bytes, otherwise by its suffix; a damaged image remains a sample."""
    field = next((field for begin, field in FORMATS.items() if content.startswith(begin)), None)
    called = PurePath(name).suffix[1:].lower()
    return field or (called if called in IMAGES else IMAGES[0])


def _member(name: str, content: bytes) -> bytes:
    """The bytes of a file in an archive; they depend neither on the user nor on the time."""
    about = tarfile.TarInfo(name)
    about.size = len(content)
    return about.tobuf(tarfile.USTAR_FORMAT) + content + bytes(-len(content) % BLOCK)
