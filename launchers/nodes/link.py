"""An agent's side of its connection to the parent: a thread receives messages and notices when they stop."""

import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from manyheads.launchers.nodes.shared_folder import seen
from manyheads.launchers.nodes.wire import Channel, Message


class ParentLink:
    """The messages from the parent. ``silence``: seconds without a message after which the parent counts as gone."""

    def __init__(self, channel: Channel, *, silence: float):
        self.channel, self.silence = channel, silence
        self._stop = (0, 0)
        self.on_where: Callable[[], None] | None = None
        self.refusal: str | None = None  # why the parent rejected this node
        self.outcome: Message | None = None  # how the run ended, sent when the parent releases this node
        self._ended, self._closed = -1, False  # ended: the last attempt that the parent has ended
        self._heard = time.monotonic()
        self._orders: queue.Queue[Message] = queue.Queue()
        threading.Thread(target=self._hear, name="link", daemon=True).start()

    def send(self, message: Message) -> None:
        """Send a message; if the connection is lost, the receiving thread notices."""
        with suppress(OSError):
            self.channel.send(message)

    def next_order(self, signals: list[int]) -> Message | None:
        """Wait for the parent's next order to start ranks; None when there is nothing more to do."""
        while not (self._closed or self.is_lost or self.outcome or signals):
            with suppress(queue.Empty):
                return self._orders.get(timeout=0.2)
        return None

    def is_over(self, attempt: int) -> bool:
        """Whether the parent has ended this attempt at the run, or is gone."""
        return self.is_lost or self._ended >= attempt

    def stop_signal(self, attempt: int) -> int:
        """The signal that asks this attempt's ranks to stop, or 0."""
        number, signum = self._stop
        return signum if number == attempt else 0

    @property
    def is_lost(self) -> bool:
        """Whether the connection has ended, or has been silent for too long."""
        return self._closed or time.monotonic() - self._heard > self.silence

    @property
    def why(self) -> str:
        """Why this node's ranks have to end, as a clause."""
        if self._closed:
            return "the run's parent is gone: its connection has ended"
        if self.is_lost:
            return f"nothing was heard from the run's parent for {self.silence:g} seconds"
        return "the run's parent has ended the run"

    def close(self) -> None:
        """Tell the parent goodbye and close the connection."""
        self.channel.close()

    def _hear(self) -> None:
        try:
            while True:
                message = self.channel.receive()
                self._heard = time.monotonic()
                self._take(message)
        except (OSError, ValueError, KeyError):
            self._closed = True

    def _take(self, message: Message) -> None:
        kind = message["do"]
        if kind == "start":
            self._orders.put(message)
        elif kind == "alive":
            self._stop = tuple(message["stop"])
            self.send({"is": "alive"})  # the only message of a machine that waits for its ranks
        elif kind == "where" and self.on_where is not None:
            self.on_where()
        elif kind == "echo":
            self.send({"is": "echo", "time": time.time(), "seen": seen(Path(message["path"]))})
        elif kind == "refuse":
            self.refusal = message["why"]
        elif kind == "leave":
            self.outcome = message
        elif kind == "end":
            self._ended = message["attempt"]
