"""What a save is given: a state of training that is the same whole and in shares, and a rank that is alone."""

from typing import Any


class Given:
    """The view of ``state``."""

    def __init__(self, state: dict[str, Any]):
        self._state = state

    def whole(self) -> dict[str, Any]:
        return self._state

    def shares(self) -> dict[str, Any]:
        return self._state


class OneRank:
    """The group of a rank that is alone."""

    rank, world_size, records = 0, 1, True

    def gather(self, value: Any) -> list[Any]:
        return [value]
