"""Which samples a rank's updates have taken: a hash of each log window, and a bit for each sample."""

import base64
import zlib
from typing import NamedTuple

import numpy as np
import torch

from manyheads.runner.data.keys import Multiset, TakenSamples, added, hashes
from manyheads.runner.parallel.rank.parallel import Parallel
from manyheads.runner.parallel.rank.passes import ForwardResult

MOST = 1000  # samples taken twice that are named
CHUNK = 2**19  # bytes of bits that are exchanged at once, as four bytes for each bit: 16 MB


class Seen(NamedTuple):
    """The samples that all ranks took since the last flush. ``bits``: base64 of a compressed bitmap, lowest bit first.

    ``again``: those that were taken more than once.
    """

    bits: str
    again: list[int]


class Taken:
    """The samples that this rank's updates took, of a data set of ``size`` samples.

    ``marks``: whether to keep a bit for each sample, so that one that is taken twice is noticed. The samples of many
    updates are hashed at once, when the windows are exchanged.
    """

    def __init__(self, size: int, *, marks: bool):
        self.size, self._open, self._closed = size, list[TakenSamples](), list[list[TakenSamples]]()
        self._bits = np.zeros(-(-size // 8) if marks else 0, np.uint8)
        self._again: list[int] = []

    def add(self, passed: ForwardResult) -> None:
        """Note the samples of a micro-batch."""
        if passed.taken is not None:
            self._open.append(passed.taken)

    def close(self) -> None:
        """End a log window."""
        self._closed.append(self._open)
        self._open = []

    def collect(self) -> list[Multiset]:
        """The samples taken in each window that was closed since the last call."""
        closed, self._closed = self._closed, []
        pairs = [part for window in closed for part in window if not isinstance(part, Multiset)]
        if not pairs:
            return [added([part for part in window if isinstance(part, Multiset)]) for window in closed]
        samples = np.concatenate([indices for _, indices in pairs])
        epochs = {epoch for epoch, _ in pairs}
        digests = (
            hashes(epochs.pop(), samples) if len(epochs) == 1 else np.concatenate([hashes(*pair) for pair in pairs])
        )
        if len(self._bits):
            self._mark(np.sort(samples))
        ends = np.cumsum([0, *(sum(len(indices) for _, indices in window) for window in closed)])  # type: ignore[misc]
        totals = np.concatenate([[np.uint64(0)], np.cumsum(digests, dtype=np.uint64)])[ends]
        return [Multiset.summed(*sums) for sums in zip(np.diff(ends).tolist(), np.diff(totals).tolist(), strict=True)]

    def _mark(self, samples: np.ndarray) -> None:
        places, bits = samples >> 3, np.left_shift(1, samples & 7).astype(np.uint8)
        is_again = self._bits[places] & bits > 0
        is_again[1:] |= samples[1:] == samples[:-1]
        self._again += samples[is_again][: MOST - len(self._again)].tolist()
        np.bitwise_or.at(self._bits, places, bits)

    def flush(self, parallel: Parallel) -> Seen | None:
        """The samples of all ranks since the last flush, which are then forgotten; None without marks.

        All ranks call it, after all windows have been collected.
        """
        if not len(self._bits):
            return None
        again = {sample for samples in parallel.gather(self._again) for sample in samples}
        if parallel.world_size > 1:
            for start in range(0, len(self._bits), CHUNK):
                marks = torch.from_numpy(np.unpackbits(self._bits[start : start + CHUNK], bitorder="little"))
                counts = parallel.reduce(marks.to(parallel.device, torch.int32)).cpu().numpy()  # Horovod sums no bytes
                again |= {8 * start + bit for bit in np.flatnonzero(counts > 1)[:MOST].tolist()}
                self._bits[start : start + CHUNK] = np.packbits(counts > 0, bitorder="little")
        bits = base64.b64encode(zlib.compress(self._bits.tobytes(), 1)).decode()
        self._bits[:], self._again = 0, []
        return Seen(bits, sorted(again)[:MOST])
