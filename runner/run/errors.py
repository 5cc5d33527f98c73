"""How a run can end other than successfully, each with the exit code of the process."""

import signal
import sys
from functools import cache

from manyheads.runner.run.failure import Failure, Kind

DIFFERS = 3  # the exit code of what ran, and compared, and is not the same


class ConfigurationError(ValueError):
    """A mistake by the user: the message names the value, what is allowed and the key to set."""

    exit_code = 2
    kind = Kind.MISTAKE
    reported = False  # whether it has been printed


class WrongValue(ConfigurationError):
    """A value that its key never accepts, whatever the other keys are; refuses a sweep as a whole."""


class Unavailable(ConfigurationError):
    """A valid request that this machine cannot run; a sweep skips such a job."""


class RunFailed(RuntimeError):
    """A run failed, or one of this project's other programs; ``failure`` says where and how."""

    exit_code = 1
    reported = False  # whether it has been printed

    def __init__(self, failure: Failure):
        super().__init__(failure.describe())
        self.failure = failure

    def __reduce__(self) -> tuple[type, tuple[Failure], dict]:
        """It may have to travel from a job's process to its sweep's."""
        return type(self), (self.failure,), self.__dict__


class Interrupted(BaseException):
    """A signal stopped the run. Not an Exception, so that Hydra ends a sweep instead of continuing it."""

    def __init__(self, signum: int):
        super().__init__(f"interrupted by {signal.Signals(signum).name}")
        self.signum = signum
        self.exit_code = 128 + signum

    def __reduce__(self) -> tuple[type, tuple[int]]:
        return type(self), (self.signum,)


class Ended(SystemExit):
    """The end of a command, hidden from Hydra, which would keep an Exception and print a line of its own.

    ``error``: what is still to be printed, if anything; otherwise ``exit_code`` says it all.
    """

    def __init__(self, exit_code: int, error: Exception | None = None):
        super().__init__(exit_code)
        self.exit_code, self.error = exit_code, error


def report(error: ConfigurationError | RunFailed) -> None:
    """Print a failure once: the rank's traceback, if there is one, and last, where it will be seen, what happened."""
    if error.reported:
        return
    error.reported = True
    if isinstance(error, RunFailed) and error.failure.traceback and error.failure.kind is not Kind.DIVERGED:
        print(printable(error.failure.traceback.rstrip()), file=sys.stderr)
    complain(str(error))


def complain(message: str) -> None:
    """Print an error in the format of all commands of this project."""
    print(f"error: {printable(message)}", file=sys.stderr)


@cache
def warn(message: str) -> None:
    """Print a warning once per process, however many jobs it concerns."""
    print(f"warning: {printable(message)}", file=sys.stderr)


def printable(value: object) -> str:
    """A text that is safe for the terminal: characters that would control it, or reorder others, are escaped."""
    text = str(value)
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in "\n\t" else ascii(each)[1:-1] for each in text)
