"""The claims of all runs at this moment, for commands that show them."""

from pathlib import Path

from manyheads.launchers.companions.room.claims import Claim
from manyheads.launchers.companions.room.registry import Registry
from manyheads.runner.errors import ConfigurationError


def current_claims() -> tuple[list[Claim], Path | None]:
    """All claims on this machine's devices, and their folder; None if no run has made a claim.

    Raises ConfigurationError if they can't be read, or others could have written them.
    """
    try:
        registry = Registry.existing()
        if registry is None:
            return [], None
        with registry, registry.turn() as claims:
            return claims, registry.path
    except OSError as error:
        raise ConfigurationError(f"{error.filename or 'the folder of leases'}: {error.strerror or error}.") from None
