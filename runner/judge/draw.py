"""The recorded draw of a judgement: which arm runs first in a round, and the seeds, all from one random number."""

import hashlib
import secrets

SEEDS = 2**31


def new_draw() -> str:
    """A random number, drawn before anything is measured."""
    return secrets.token_hex(16)


def is_base_first(draw: str, purpose: str, number: int) -> bool:
    """The coin of a round."""
    return not _number(draw, "coin", purpose, number) % 2


def seed(draw: str, purpose: str, number: int, place: int) -> int:
    """The seed of the run that is first (0) or second (1) in a round, so the coin also assigns the seeds."""
    return _number(draw, "seed", purpose, number, place) % SEEDS


def _number(draw: str, *about: object) -> int:
    return int.from_bytes(hashlib.sha256(" ".join(map(str, (draw, *about))).encode()).digest()[:8], "big")
