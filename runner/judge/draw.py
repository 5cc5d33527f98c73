"""A judgement's draw: one recorded random number that decides which arm runs first in each round, and all seeds."""

import hashlib
import secrets

SEEDS = 2**31


def new_draw() -> str:
    """A random number, as hexadecimal digits. Drawn before anything is measured."""
    return secrets.token_hex(16)


def is_base_first(draw: str, purpose: str, number: int) -> bool:
    """Whether base runs first in a round: its toss of a coin."""
    return not _number(draw, "coin", purpose, number) % 2


def seed(draw: str, purpose: str, number: int, place: int) -> int:
    """The seed of the run in a round with this place: 0 for the first, 1 for the second.

    Seeds belong to places, not to arms, so the coin also decides which arm gets which seed.
    """
    return _number(draw, "seed", purpose, number, place) % SEEDS


def _number(draw: str, *about: object) -> int:
    return int.from_bytes(hashlib.sha256(" ".join(map(str, (draw, *about))).encode()).digest()[:8], "big")
