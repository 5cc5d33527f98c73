"""What a tracker's client says, without the keys that it was given: run folders get published."""

import os

from manyheads.runner.provenance.record import SECRET, without_secrets

MOST_CHARACTERS = 160
SHORTEST = 6  # characters of a secret that is looked for


def masked(error: BaseException) -> str:
    """The kind and the first line of an error, with passwords in addresses and the environment's secrets masked."""
    text = str(error).strip().partition("\n")[0]
    for name, value in os.environ.items():
        if SECRET.search(name) and len(value) >= SHORTEST:
            text = text.replace(value, "***")
    text = " ".join(without_secrets(word) for word in text.split(" "))[:MOST_CHARACTERS]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
