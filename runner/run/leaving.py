"""Which files of a run folder may leave it for object storage, and come back; trackers get named files only."""

from pathlib import PurePath

KEY = "nodes.key"  # in logs/: with it, any machine can join the run
STATE = "state"  # where Kubernetes' and SkyPilot's machines share their key, and would look for what is trusted
HEARTBEAT = "heartbeat"  # in logs/: of the processes, not of the run
_STAY = (PurePath("logs", KEY), PurePath(STATE), PurePath("logs", HEARTBEAT))


def may_leave(path: str | PurePath) -> bool:
    """Whether a file, by its path in the run folder, may be copied elsewhere, or back from there."""
    path = PurePath(path)
    return not any(path.is_relative_to(each) for each in _STAY) and not any(
        part.endswith((".aside", ".key")) for part in path.parts
    )
