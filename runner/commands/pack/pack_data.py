"""``manyheads pack``: finds the samples of the source, and writes them into a new folder, complete or not at all."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from manyheads import __version__
from manyheads.runner.answers.measure.subject import subject_of
from manyheads.runner.commands.pack.answer import Packed, Settings, Written
from manyheads.runner.commands.pack.destination import Destination, destination, refuse_existing
from manyheads.runner.commands.pack.write_tar import write_tar
from manyheads.runner.config.quoting import quoted
from manyheads.runner.data import token_files
from manyheads.runner.data.data_option import Data, DataOption
from manyheads.runner.data.indexing import add_file
from manyheads.runner.data.samples import ImageFiles, Samples, TokenBlocks
from manyheads.runner.data.shards.blocks import BlockTable
from manyheads.runner.data.shards.files import LocalFile
from manyheads.runner.data.shards.index import NAME as INDEX
from manyheads.runner.data.shards.index import TOKENS, save_index
from manyheads.runner.data.tokenizing import end_of
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.files import write_whole
from manyheads.runner.run.objects import is_address
from manyheads.runner.run.progress import keeping, working
from manyheads.runner.run.run_folder import RunFolder

NAME = "packed.json"  # records the settings and the source


def write_tokens(splits: Mapping[str, TokenBlocks], out: Destination, settings: Settings, data: Data) -> Written:
    """Write <split>.bin and <split>.idx: the tokens, and where documents end.

    Documents end with the token that the data's tokenizer appends to each text; if there is none, each split is one
    document.
    """
    end, table = end_of(getattr(data, "tokenizer", None)), BlockTable()
    with working("writing tokens", len(splits)) as work:
        for split, blocks in splits.items():
            tokens = blocks.tokens[:]
            token_files.write(out.folder, split, tokens, _ends(tokens, end))
            names = [f"{split}{suffix}" for suffix in TOKENS.suffixes]
            for name in names:  # reads back what was written
                add_file(table, name, names, TOKENS, lambda name: LocalFile(out.folder / name, None))
            for name in names:
                out.finish(name)
            work.advance()
    counts = {name: len(blocks.tokens) for name, blocks in splits.items()}
    size = next(iter(splits.values())).block_size
    words = (f"data.vocab_size={data.num_classes}", f"data.block_size={size}", "task=language_model", "model=gpt")
    return Written(counts, len(splits), 0, table.index(out.folder, TOKENS), words)


def _ends(tokens: Any, end: int | None) -> list[int]:
    import numpy as np

    places = [] if end is None else (np.flatnonzero(tokens == end) + 1).tolist()
    return places if places[-1:] == [len(tokens)] else [*places, len(tokens)]


Write = Callable[[Mapping[str, Any], Destination, Settings, Data], Written]
WRITERS: Sequence[tuple[type, str, Write]] = [
    (ImageFiles, "tar", write_tar),
    (TokenBlocks, "tokens", write_tokens),
]


def pack(source: str, overrides: Sequence[str], shards: str, settings: Settings) -> Packed:
    """Write the samples of ``source`` into the new folder or address ``shards``. Raises ConfigurationError."""
    refuse_existing(shards)
    option = subject_of(_words(source, overrides, settings.to)).run.data
    data, splits = _splits(option)
    kind, write = _writer(option, splits["train"], settings.to)
    with keeping("packing", "no shards were written"), destination(shards) as out:
        written = write(splits, out, settings, data)
        about = {"manyheads": __version__, "data": option.name, "splits": written.splits, "settings": asdict(settings)}
        write_whole(out.folder / NAME, json.dumps(about, indent=2) + "\n")
        out.finish(NAME)
        save_index(written.contents, out.folder / INDEX)
        out.finish(INDEX)  # without which nothing is read from object storage
    root = shards if is_address(shards) else Path(shards).absolute()
    words = " ".join([f"data={kind}", f"data.root={quoted(root)}", *written.overrides])
    return Packed(shards, kind, *written[:3], bytes=out.bytes, train=words)


def _words(source: str, overrides: Sequence[str], to: str | None) -> list[str]:
    """The words that describe a run with this source, as ``explain`` takes them. Raises ConfigurationError."""
    path = Path(source)
    if RunFolder(path).config.is_file() or ("=" in source and not path.exists()):
        return [source, *overrides]
    if not path.exists():
        raise ConfigurationError.at("source", source, ": there is no such file or folder.")
    root = f"data.root={quoted(path.absolute())}"
    if path.is_dir() and to != "tokens":
        # Without val/, validation samples are drawn from the photos when they are trained on; here all are packed.
        drawn = [] if (path / "val").is_dir() else ["data.val_fraction=0.1"]
        return ["data=imagefolder", root, *drawn, *overrides]
    return ["data=text", root, "task=language_model", "model=gpt", *overrides]


def _splits(option: DataOption) -> tuple[Data, Mapping[str, Samples]]:
    """The data and its splits, without a validation split that training would draw from the training samples."""
    from manyheads.runner.data.rank.build_data import build_data  # imports torch, which takes a second

    data = build_data(option)
    splits: dict[str, Samples | None] = {"train": data.split(train=True)}
    for split in ("val", "test"):
        try:
            splits[split] = data.split(train=False) if split == "val" else data.test()
        except FileNotFoundError:
            if split == "val" and option.partition is None:
                raise
    return data, {split: samples for split, samples in splits.items() if samples is not None}


def _writer(option: DataOption, samples: Samples, to: str | None) -> tuple[str, Write]:
    """The option that reads the result, and the function that writes it. Raises ConfigurationError."""
    for kind, name, write in WRITERS:
        if isinstance(samples, kind):
            if to in (name, None):
                return name, write
            raise ConfigurationError.at(
                "--to", to, f" does not fit the samples of data={option.name}. Allowed: {name}.", allowed=[name]
            )
    raise ConfigurationError.at("data", option.name, " can't be packed. Allowed: images in files, and text in blocks.")
