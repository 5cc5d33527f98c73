"""How a run can end other than well, each with the process's exit code."""

import signal
import sys

from manyheads.runner.run.failure import Failure

DIFFERS = 3  # the exit code of what ran, and compared, and is not the same


class ConfigurationError(ValueError):
    """The user's mistake: the message names the value, what is allowed and the key to set."""

    exit_code = 2


class Unavailable(ConfigurationError):
    """What was asked for is right, but not there on this machine: a sweep skips such a job."""


class RunFailed(RuntimeError):
    """A run failed, or one of this project's other programs; ``failure`` says where and how."""

    exit_code = 1

    def __init__(self, failure: Failure):
        super().__init__(failure.describe())
        self.failure = failure

    def __reduce__(self) -> tuple[type, tuple[Failure]]:
        """It may have to travel from a job's process to its sweep's."""
        return type(self), (self.failure,)


class Interrupted(BaseException):
    """A signal stopped the run. Not an Exception, so that Hydra ends a sweep instead of going on with it."""

    def __init__(self, signum: int):
        super().__init__(f"interrupted by {signal.Signals(signum).name}")
        self.signum = signum
        self.exit_code = 128 + signum

    def __reduce__(self) -> tuple[type, tuple[int]]:
        return type(self), (self.signum,)


def complain(message: str) -> None:
    """Print an error the way that every command of this project does."""
    print(f"error: {message}", file=sys.stderr)
