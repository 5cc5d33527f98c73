"""What any option may declare about itself, so that no other code has to know its name."""

from collections.abc import Mapping
from typing import Any, ClassVar

from manyheads.runner.option.rules import Rule


class Option:
    """Declarations for one section of the run config, used in the parent before any rank starts; must not import torch.

    ``section``: its keys with their values; if the option is only inspected, the defaults of its YAML. Class attributes
    declare what the class adds to its bases.

    ``rules``: allowed values of its keys. ``steering``: keys whose free text becomes part of a command line, names a
    machine or a file to write, or that download something, so that somebody else's config may set them only to null or
    false. ``derived``: keys that ``complete`` derives from others. ``without_effect``: keys that cannot change a run's
    results. ``has_own_class``: no other option has the same
    class, so that its name identifies the code.
    """

    rules: ClassVar[Mapping[str, Rule]] = {}
    steering: ClassVar[tuple[str, ...]] = ()
    derived: ClassVar[tuple[str, ...]] = ()
    without_effect: ClassVar[tuple[str, ...]] = ()
    has_own_class: ClassVar[bool] = False

    def __init__(self, section: dict[str, Any]):
        self.section = section

    def unavailable(self) -> str | None:
        """Why the option cannot run on this machine, and how to get it; None if it can."""
        return None

    def note(self) -> str:
        """What the doctor prints about the option if it can run; may be empty."""
        return ""

    def installed(self) -> dict[str, str]:
        """By name, the libraries that the option is built on, as the doctor describes them; without torch's own."""
        return {}

    def complete(self, config: dict[str, Any]) -> None:
        """Resolve this section's ``auto`` values in place, and refuse what it does not work with.

        ``config``: the whole run config, with device and number of ranks already resolved. Raises ConfigurationError,
        or Unavailable for valid settings that this machine cannot run.
        """

    @classmethod
    def all_rules(cls) -> dict[str, Rule]:
        """The rules of the class and its bases, by key."""
        return {key: rule for kind in reversed(cls.__mro__) for key, rule in vars(kind).get("rules", {}).items()}

    @classmethod
    def every(cls, attribute: str) -> set[str]:
        """The keys in ``steering``, ``derived`` or ``without_effect`` of the class and its bases."""
        return {key for kind in cls.__mro__ for key in vars(kind).get(attribute, ())}
