"""Samples of several fields, decoded by their extensions, or by the user's own functions."""

import json
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from typing import Any

import numpy as np
import torch

from manyheads.runner.data.samples import CorruptSample, StoredFile
from manyheads.runner.data.tar import CLASS, IMAGES, TEXTS
from manyheads.runner.data.tar.members import Samples
from manyheads.runner.errors import ConfigurationError

Decoder = Callable[[bytes], Any]


class Fields:
    """Item i is a tuple with a value for each of ``wanted``; with a single one, the value itself.

    ``wanted``: for each value, the names of alternative fields, of which the first that a sample has is used, and their
    columns in the index; ``decoders``: by field, a function of its bytes.
    """

    def __init__(
        self,
        samples: Samples,
        wanted: Sequence[tuple[Sequence[str], Sequence[int]]],
        decoders: Mapping[str, Decoder],
        classes: Sequence[str] | None,
    ):
        self.samples, self.wanted, self.classes = samples, wanted, classes
        self.read_ahead = samples.read_ahead
        fields = samples.index.about.fields
        self.decoders = {column: decoder_of(fields[column], decoders) for _, columns in wanted for column in columns}

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        values = tuple(self._value(index, names, columns) for names, columns in self.wanted)
        return values if len(values) > 1 else values[0]

    def _value(self, index: int, names: Sequence[str], columns: Sequence[int]) -> Any:
        for column in columns:
            if (content := self.samples.content(index, [column])) is not None:
                return self._decoded(content, column)
        raise CorruptSample(self.samples.name(index), f"it has no field {' or '.join(names)}")

    def _decoded(self, content: StoredFile, column: int) -> Any:
        try:
            return self.decoders[column](content)
        except Exception as error:  # each format has errors of its own
            raise CorruptSample(content.origin(), error) from None


def decoder_of(field: str, decoders: Mapping[str, Decoder]) -> Decoder:
    """The function that decodes the bytes of a field. Raises ConfigurationError if there is none."""
    if field in decoders:
        if callable(decoder := decoders[field]):
            return decoder
        key = f"data.decoders.{field}"
        raise ConfigurationError(f"{key}: {decoder!r} cannot be called. Give it a _target_.", key=key)
    if field in IMAGES:
        from manyheads.runner.data.rank.photos import Picture  # imports torchvision, which is slow

        return lambda content: Picture(content).decoded().contiguous()
    if (default := _KNOWN.get(field)) is not None:
        return default
    allowed = [*IMAGES, *_KNOWN]
    raise ConfigurationError.at(
        "data.fields",
        field,
        ": files with this name are not read. Name a class whose objects are called with their bytes: "
        f"+data.decoders.{field}._target_=my_package.Read. Allowed: {', '.join(allowed)}.",
        allowed=allowed,
    )


_KNOWN: Mapping[str, Decoder] = {
    CLASS: lambda content: int(content.decode().strip()),
    "json": json.loads,
    "npy": lambda content: torch.from_numpy(np.load(BytesIO(content), allow_pickle=False)),
    **dict.fromkeys(TEXTS, bytes.decode),
}
