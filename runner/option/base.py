"""What any option may declare about itself, so that nothing else has to know its name."""

from collections.abc import Mapping
from typing import Any, ClassVar

from manyheads.runner.option.rules import Rule


class Option:
    """One section of the run config, asked in the parent before any rank starts; must not import torch.

    ``section``: its keys with their values; of an option that is only looked at, the defaults of its YAML. Class
    attributes hold what is the class's own, and add to what its bases have.

    ``rules``: which values its keys may have. ``steering``: keys whose free text becomes part of a command line, names
    a machine or a file to write, or which fetch something, so that nobody else's config may set them to more than null
    or false. ``derived``: keys that ``complete`` decides from others. ``has_own_class``: no other option has the same
    class, so that its name tells what it is.
    """

    rules: ClassVar[Mapping[str, Rule]] = {}
    steering: ClassVar[tuple[str, ...]] = ()
    derived: ClassVar[tuple[str, ...]] = ()
    has_own_class: ClassVar[bool] = False

    def __init__(self, section: dict[str, Any]):
        self.section = section

    def unavailable(self) -> str | None:
        """Why it cannot run on this machine, and how to get it; None if it can."""
        return None

    def note(self) -> str:
        """What the doctor says of it where it can run; may be nothing."""
        return ""

    def complete(self, config: dict[str, Any]) -> None:
        """Decide this section's ``auto`` values in place, and refuse what it does not go together with.

        ``config``: the whole run config, whose device and number of ranks are decided. Raises ConfigurationError, or
        Unavailable for what is right but cannot be had on this machine.
        """

    @classmethod
    def all_rules(cls) -> dict[str, Rule]:
        """The rules of the class and its bases, by key."""
        return {key: rule for kind in reversed(cls.__mro__) for key, rule in vars(kind).get("rules", {}).items()}

    @classmethod
    def every(cls, attribute: str) -> set[str]:
        """The keys in ``steering`` or ``derived`` of the class and its bases."""
        return {key for kind in cls.__mro__ for key in vars(kind).get(attribute, ())}
