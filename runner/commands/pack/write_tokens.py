"""Writes text as tokens, in Megatron's file format; read by data=tokens."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from manyheads.runner.commands.pack.answer import Settings, Written
from manyheads.runner.data.data_option import Data, TokenBlocks
from manyheads.runner.data.token_files import write
from manyheads.runner.data.tokenizing import end_of
from manyheads.runner.run.progress import working


def write_tokens(splits: Mapping[str, TokenBlocks], folder: Path, settings: Settings, data: Data) -> Written:
    """Write <split>.bin and <split>.idx into ``folder``: the tokens, and where documents end.

    Documents end with the token that the data's tokenizer appends to each text; if there is none, each split is one
    document.
    """
    end = end_of(getattr(data, "tokenizer", None))
    with working("writing tokens", len(splits)) as work:
        for name, blocks in splits.items():
            write(folder, name, blocks.tokens, _ends(blocks.tokens, end))
            work.advance()
    counts = {name: len(blocks.tokens) for name, blocks in splits.items()}
    size = next(iter(splits.values())).block_size
    words = (f"data.vocab_size={data.num_classes}", f"data.block_size={size}", "task=language_model", "model=gpt")
    return Written(counts, len(splits), 0, words)


def _ends(tokens: Any, end: int | None) -> list[int]:
    import numpy as np

    places = [] if end is None else (np.flatnonzero(tokens == end) + 1).tolist()
    return places if places[-1:] == [len(tokens)] else [*places, len(tokens)]
