"""What a key's value may be, from harmless to dangerous: whether somebody else's config may set it."""

from enum import IntEnum


class KeyKind(IntEnum):
    """Declared by a key's rule, and None until somebody has decided it, which then counts as dangerous.

    Somebody else's config may set a number, one of some words, a text that names nothing outside the run, and objects,
    judged by their classes. ``PATH``, of data or weights that are only read: inside the folder that was received.
    ``PLACE``, any other path, address, host or command, and what downloads; and ``ANYTHING``, arguments of another
    library: only what the user types or trusts.
    """

    NUMBER = 1
    CHOICE = 2
    TEXT = 3
    OBJECT = 4
    PATH = 5
    PLACE = 6
    ANYTHING = 7
