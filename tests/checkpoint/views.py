"""A state of training that is the same whole and in shares."""

from typing import Any


class Given:
    """The view of ``state``."""

    def __init__(self, state: dict[str, Any]):
        self._state = state

    def whole(self) -> dict[str, Any]:
        return self._state

    def shares(self) -> dict[str, Any]:
        return self._state
