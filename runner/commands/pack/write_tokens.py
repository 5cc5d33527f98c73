"""Writes text as tokens, in Megatron's file format; read by data=tokens."""

from collections.abc import Mapping
from typing import Any

from manyheads.runner.commands.pack.answer import Settings, Written
from manyheads.runner.commands.pack.destination import Destination
from manyheads.runner.data.data_option import Data
from manyheads.runner.data.indexing import add_file
from manyheads.runner.data.samples import TokenBlocks
from manyheads.runner.data.shards.blocks import BlockTable
from manyheads.runner.data.shards.files import LocalFile
from manyheads.runner.data.shards.index import TOKENS
from manyheads.runner.data.token_files import write
from manyheads.runner.data.tokenizing import end_of
from manyheads.runner.run.progress import working


def write_tokens(splits: Mapping[str, TokenBlocks], out: Destination, settings: Settings, data: Data) -> Written:
    """Write <split>.bin and <split>.idx: the tokens, and where documents end.

    Documents end with the token that the data's tokenizer appends to each text; if there is none, each split is one
    document.
    """
    end, table = end_of(getattr(data, "tokenizer", None)), BlockTable()
    with working("writing tokens", len(splits)) as work:
        for split, blocks in splits.items():
            tokens = blocks.tokens[:]
            write(out.folder, split, tokens, _ends(tokens, end))
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
