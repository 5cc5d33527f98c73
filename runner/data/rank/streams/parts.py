"""A stream that a data set divides into parts itself, such as its files, so that a rank reads only some of them."""

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

from manyheads.runner.data.keys import keys_of
from manyheads.runner.data.rank.streams.stream import Reached, Stream
from manyheads.runner.data.samples import DatasetWrapper
from manyheads.runner.parallel.rank.parallel import Parallel

PART = 4  # a part of the keys of random numbers


class StreamParts(DatasetWrapper):
    """As many samples of each of the ``parts`` in each batch, those of one part together, and of neighbours on a rank.

    Which part has the sample at a position depends on ``batch_size`` alone: so batches are the same on any number of
    ranks, and a process opens the parts that its samples are from. Each part begins anew when it has ended.
    """

    def __init__(self, parts: Iterable[Stream], *, batch_size: int):
        self._parts, self._batch, self._first = [*parts], batch_size, 0
        super().__init__(self._parts[0])
        self._share, self._opened = batch_size // len(self._parts), set[int]()

    @property
    def summary(self) -> str:
        """How samples are read, for the header."""
        return (
            f"stream: {len(self._parts)} parts of the data, as many samples of each in a batch, read by ranks that "
            f"need them, and again when a part has ended; {self._parts[0].resuming}"
        )

    @cached_property
    def identity(self) -> str:
        """The digest of the first samples, with what decides their order."""
        return f"{self._parts[0].identity} {len(self._parts)} {self._batch}"

    def set_epoch(self, epoch: int) -> None:
        """Let samples be those of a training epoch, counted from 0."""
        self._first = epoch * len(self)

    def begin(self, parallel: Parallel, *, seed: int) -> None:
        """As ``Stream.begin``, which examines the first part."""
        for number, part in enumerate(self._parts[1:], 1):
            part.seed = int(keys_of(seed, number, PART, count=1)[0])
        self._parts[0].begin(parallel, seed=seed)
        for part in self._parts:
            part.keeps_state = self._parts[0].keeps_state

    def __getitem__(self, index: int) -> Any:
        batch, slot = divmod(self._first + index, self._batch)
        number, within = divmod(slot, self._share)
        self._opened.add(number)
        return self._parts[number].at(batch * self._share + within)

    def reached(self) -> Mapping[int, Reached]:
        """As ``Stream.reached``, of each part that this process reads."""
        return {number: there for number in self._opened for there in self._parts[number].reached().values()}

    def resume(self, reached: Mapping[int, Reached]) -> None:
        """As ``Stream.resume``."""
        for number, there in reached.items():
            self._parts[number].resume({0: there})


def build_stream(dataset: Any, *, is_train: bool, batch_size: int, **reading: Any) -> Stream | StreamParts:
    """The samples of an iterable data set by their position, in parts if it offers ``shard(num_shards, index)``."""
    options = {**reading, "is_train": is_train, "batch_size": batch_size}
    stream = Stream(dataset, **options)
    most = getattr(dataset, "num_shards", 1) if is_train and callable(getattr(dataset, "shard", None)) else 1
    count = next(number for number in range(min(int(most), batch_size), 0, -1) if batch_size % number == 0)
    if count == 1 or stream.has_length:
        return stream
    parts = (dataset.shard(num_shards=count, index=index) for index in range(count))
    return StreamParts((Stream(part, **{**options, "size": len(stream)}) for part in parts), batch_size=batch_size)
