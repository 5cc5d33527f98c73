"""How a run can end other than well, each with the process's exit code."""

import signal
import sys

DIFFERS = 3  # the exit code of what ran, and compared, and is not the same


class ConfigurationError(ValueError):
    """The user's mistake: the message names the value, what is allowed and the key to set."""

    exit_code = 2


class Unavailable(ConfigurationError):
    """What was asked for is right, but not there on this machine: a sweep skips such a job."""


class RunFailed(RuntimeError):
    """A rank failed; ``error`` is result.json's entry {rank, exit_code, type, message, traceback}."""

    exit_code = 1

    def __init__(self, error: dict):
        super().__init__(describe(error))
        self.error = error

    def __reduce__(self) -> tuple[type, tuple[dict]]:
        """It may have to travel from a job's process to its sweep's."""
        return type(self), (self.error,)


class Interrupted(BaseException):
    """A signal stopped the run. Not an Exception, so that Hydra ends a sweep instead of going on with it."""

    def __init__(self, signum: int):
        super().__init__(f"interrupted by {signal.Signals(signum).name}")
        self.signum = signum
        self.exit_code = 128 + signum

    def __reduce__(self) -> tuple[type, tuple[int]]:
        return type(self), (self.signum,)


def describe(error: dict) -> str:
    """One paragraph that says which rank failed first, and how."""
    where = "the run failed" if error["rank"] is None else f"rank {error['rank']} failed first"
    code = "" if error["exit_code"] is None else f" (exit code {error['exit_code']})"
    return f"{where}{code}: {error['type']}: {error['message']}"


def complain(message: str) -> None:
    """Print an error the way that every command of this project does."""
    print(f"error: {message}", file=sys.stderr)
