"""The timeline of an update: two streams, computing and network, each of which does one thing after another."""

from dataclasses import dataclass

COMPUTE, NETWORK = "compute", "network"


@dataclass(frozen=True)
class BusySpan:
    """One thing that a stream does. ``start``, ``end``: seconds since the beginning of the update."""

    stream: str
    what: str
    start: float
    end: float


class Timeline:
    """What the streams do in one update."""

    def __init__(self) -> None:
        self.spans: list[BusySpan] = []
        self._free: dict[str, float] = {}

    def free(self, stream: str) -> float:
        """When the stream has done everything that it was given."""
        return self._free.get(stream, 0.0)

    def run(self, stream: str, what: str, seconds: float, *, ready: float = 0.0) -> float:
        """Give a stream something to do, not before ``ready``; return the time at which it is done."""
        start = max(ready, self.free(stream))
        end = self._free[stream] = start + seconds
        if seconds > 0:
            self.spans.append(BusySpan(stream, what, start, end))
        return end

    def busy(self, stream: str, *, what: str | None = None) -> float:
        """Seconds that a stream is busy in total, or with ``what``."""
        spans = (span for span in self.spans if span.stream == stream and what in (None, span.what))
        return sum(span.end - span.start for span in spans)

    def overlap(self) -> float:
        """Seconds in which both streams are busy: devices compute during an exchange."""
        computing = [(span.start, span.end) for span in self.spans if span.stream == COMPUTE]
        seconds, at = 0.0, 0
        for span in (span for span in self.spans if span.stream == NETWORK):
            while at < len(computing) and computing[at][1] <= span.start:
                at += 1
            for start, end in computing[at:]:
                if start >= span.end:
                    break
                seconds += max(0.0, min(end, span.end) - max(start, span.start))
        return seconds
