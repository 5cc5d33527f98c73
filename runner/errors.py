"""The errors with which runs and commands end, their exit codes, and the failure that caused them."""

import errno
import json
import os
import re
import signal
import sys
import textwrap
import traceback
from collections.abc import Sequence
from dataclasses import KW_ONLY, asdict, dataclass, replace
from enum import IntEnum, StrEnum
from functools import cache
from typing import Any, ClassVar, Self, TextIO

# Gloo closes its connections before the error that it raises can be reported, so other ranks notice the former first.
LOST_PEER = ("connection closed by peer", "connection reset by peer")
NO_MEMORY = ("OutOfMemoryError", "out of memory", "can't allocate memory")  # of a GPU, or torch's CPU allocator


class ExitCode(IntEnum):
    """The exit code of a command, also explained in docs/programs.md. ``meaning``: a sentence."""

    meaning: str

    def __new__(cls, value: int, meaning: str) -> "ExitCode":
        member = int.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member

    DONE = 0, "done, and the answer is yes where there was a question"
    FAILED = 1, "it failed: a rank, another program, the disk"
    REFUSED = 2, "it was not started: a wrong key or value, something missing, a backend that is unavailable"
    NO = 3, "it ran, and the answer is no: it differs, does not fit, misses the target, is not worth keeping"
    UNDECIDED = 4, "it ran, and what was measured does not suffice for an answer"
    EXPIRED = 5, "it was not started: it has waited for as long as it was allowed to"
    SPENT = 6, "a budget is spent: nothing was started, or what ran has stopped; a run that trains with a checkpoint"
    INTERRUPTED = 130, "stopped by Ctrl-C; a run that trains has written a checkpoint"
    TERMINATED = 143, "stopped by SIGTERM; a run that trains has written a checkpoint"


class Kind(StrEnum):
    """All kinds of failures that this project distinguishes."""

    RAISED = "Raised"  # an exception of any other kind
    MISTAKE = "ConfigurationError"  # by the user: nothing was wrong with the run
    DIVERGED = "FloatingPointError"  # the loss is no longer a number
    CORRUPTED = "Corrupted"  # a repeated computation gave another result, or memory has changed by itself
    OUT_OF_MEMORY = "OutOfMemory"  # more was requested than the machine, or the job, has
    LOST_PEER = "LostPeer"  # an exception which only reports that another rank is gone
    PROCESS_DIED = "ProcessDied"  # a process ended without reporting why
    STALLED = "Stalled"  # no progress within launcher.stall_timeout
    TIMED_OUT = "TimedOut"  # longer than launcher.timeout, or the queue, allows
    NODE_LOST = "NodeLost"  # a machine is gone, or was never reached
    PARENT_ENDED = "ParentEnded"  # the run's parent ended the ranks of this machine, or is gone
    NOT_STARTED = "NotStarted"  # a queue or cluster ended the run before it began, or had no room
    CANCELLED = "Cancelled"  # by a queue, on request
    PREEMPTED = "Preempted"  # by a queue, for another job
    UNREACHABLE = "Unreachable"  # a queue or cluster does not answer, or refuses a request
    PROGRAM_FAILED = "ProgramFailed"  # a program other than a rank


class Code(StrEnum):
    """The name of a command's error for programs: the kind of a failure, or one of these."""

    MISTAKE = Kind.MISTAKE.value
    WRONG_VALUE = "WrongValue"  # a value that its key or flag never accepts
    UNKNOWN_NAME = "UnknownName"  # a key or an option that does not exist
    UNAVAILABLE = "Unavailable"  # valid, but this machine lacks what it needs
    EXPIRED = "WaitExpired"  # valid, but the wait for other processes has lasted as long as it may
    SPENT = "BudgetSpent"  # valid, but a budget is spent
    DISK = "Disk"  # full, read-only, or not permitted
    INTERRUPTED = "Interrupted"  # by a signal


NO_OUTPUT = "standard output cannot be written"
_OF_OUTPUT = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EPIPE)


def lost_output(error: BaseException) -> OSError | None:
    """The failure of standard output that caused ``error``: a full disk, or no reader. None for other causes.

    ``error`` does not name its file, so an empty line is printed to find out whether stdout is the cause.
    """
    if not isinstance(error, OSError) or error.filename is not None or error.errno not in _OF_OUTPUT:
        return None
    try:
        print(flush=True)
    except OSError as failure:
        return failure
    return None


@dataclass(frozen=True)
class Failure:
    """A failure and its cause.

    rank: None if it does not belong to one rank. exit_code: of the process; negative: the signal that killed it; None:
    unknown. type: the exception's class; the name of the kind if none was raised. traceback: "" if there is none. node:
    where it happened, in a run on several machines. key, value, allowed: of a ConfigurationError.
    """

    kind: Kind = Kind.RAISED
    _: KW_ONLY
    rank: int | None = None
    exit_code: int | None = None
    type: str = ""
    message: str
    traceback: str = ""
    node: str | None = None
    key: str | None = None
    value: Any = None
    allowed: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        if not self.type:
            object.__setattr__(self, "type", self.kind.value)

    @classmethod
    def of(cls, error: BaseException, *, rank: int | None = None) -> "Failure":
        """The failure of a process that ``error`` ends, with the exit code of the error, or 1 if it has none.

        If standard output is lost, the traceback is omitted: it would not help.
        """
        if (lost := lost_output(error)) is not None:
            return cls(rank=rank, exit_code=1, type=type(lost).__name__, message=f"{NO_OUTPUT}: {lost.strerror}")
        exit_code = error.code if isinstance(error, SystemExit) else getattr(error, "exit_code", 1)
        failure = cls(
            _kind(error),
            rank=rank,
            exit_code=exit_code if isinstance(exit_code, int) else 1,
            type=type(error).__name__,
            message=str(error),
            traceback="".join(traceback.format_exception(error)),
        )
        if not isinstance(error, ConfigurationError):
            return failure
        sent = json.dumps([error.value, error.allowed], default=str, skipkeys=True)
        value, allowed = json.loads(sent)  # as they arrive in JSON
        return replace(failure, key=error.key, value=value, allowed=tuple(allowed))

    @classmethod
    def from_json(cls, content: object) -> "Failure | None":
        """The failure in parsed JSON; None if type or message is missing. Unknown keys are ignored."""
        if not isinstance(content, dict):
            return None
        numbers = {key: content[key] for key in ("rank", "exit_code") if type(content.get(key)) is int}
        names = ("type", "message", "traceback", "node", "key")
        texts = {key: content[key] for key in names if isinstance(content.get(key), str)}
        if not {"type", "message"} <= texts.keys():
            return None
        kind = next((kind for kind in Kind if kind == content.get("kind")), Kind.RAISED)
        allowed = tuple(given) if isinstance(given := content.get("allowed"), list) else ()
        return cls(kind, **numbers, **texts, value=content.get("value"), allowed=allowed)

    def to_json(self) -> dict[str, Any]:
        """As a dict for ``json.dumps``, in the order of the fields; the last four only if they are known."""
        rare = ("node", "key", "value", "allowed")
        return {name: value for name, value in asdict(self).items() if name not in rare or value not in (None, ())}

    def describe(self) -> str:
        """One paragraph that says which rank failed first, and how."""
        who = [] if self.rank is None else [f"rank {self.rank}"]
        who += [] if self.node is None else [f"machine {self.node}"]
        where = f"{' on '.join(who)} failed first" if who else "the run failed"
        code = "" if self.exit_code is None else f" (exit code {self.exit_code})"
        return f"{where}{code}: {self.type}: {self.message}"


def lacked_memory(text: str) -> bool:
    """Whether an error's text says that memory ran out."""
    return any(phrase in text for phrase in NO_MEMORY)


def _kind(error: BaseException) -> Kind:
    """The kind of failure of a process that ``error`` ends."""
    if isinstance(kind := getattr(error, "kind", None), Kind):
        return kind
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, FloatingPointError):
        return Kind.DIVERGED
    if lacked_memory(text):
        return Kind.OUT_OF_MEMORY
    return Kind.LOST_PEER if any(phrase in text.lower() for phrase in LOST_PEER) else Kind.RAISED


class ConfigurationError(ValueError):
    """A mistake by the user: the message names the value, what is allowed and the key to set.

    For programs, as far as known: ``key``, the key or flag that is wrong; ``value``, its value; ``allowed``, the
    allowed values or a description of them, by default what follows "Allowed: " in the message.
    """

    exit_code = ExitCode.REFUSED
    kind = Kind.MISTAKE
    code: ClassVar[Code] = Code.MISTAKE
    reported = False  # whether it has been printed
    answer: Any = None  # the command's answer, as far as it is known

    def __init__(self, message: str, *, key: str | None = None, value: Any = None, allowed: Sequence[Any] = ()):
        super().__init__(message)
        described = message.partition("Allowed: ")[2].removesuffix(".")
        self.key, self.value, self.allowed = key, value, tuple(allowed) or ((described,) if described else ())

    @classmethod
    def at(cls, key: str, value: object, rest: str, *, allowed: Sequence[Any] = ()) -> Self:
        """The error about the value of a key or flag. Its message: ``key=value`` or ``--flag value``, and ``rest``."""
        return cls(f"{as_typed(key, value)}{rest}", key=key, value=value, allowed=allowed)


class WrongValue(ConfigurationError):
    """A value that its key never accepts, whatever the other keys are; refuses a sweep as a whole."""

    code = Code.WRONG_VALUE


class UnknownName(ConfigurationError):
    """A key or an option that does not exist."""

    code = Code.UNKNOWN_NAME


class Unavailable(ConfigurationError):
    """A valid request that this machine cannot run; a sweep skips such a job."""

    code = Code.UNAVAILABLE


class WaitExpired(ConfigurationError):
    """A valid request that has waited for other processes for as long as it may; later it may be possible."""

    exit_code = ExitCode.EXPIRED
    code = Code.EXPIRED


def not_allowed(
    key: str, value: object, allowed: str, *, values: Sequence[Any] = (), shown: object = None, hint: str = ""
) -> WrongValue:
    """The error for a value that its key or flag does not accept.

    ``allowed``: completes the sentence "Allowed: ..."; ``values``: the allowed values, if they can be listed;
    ``shown``: the text to print instead of the value; ``hint``: a sentence to insert before "Allowed", such as a
    suggestion.
    """
    message = f"{as_typed(key, value if shown is None else shown)} is not allowed.{hint} Allowed: {allowed}."
    return WrongValue(message, key=key, value=value, allowed=values or (allowed,))


def as_typed(key: str, value: object) -> str:
    """``trainer.epochs=3``, ``--steps 3``."""
    if value is None or isinstance(value, bool):
        value = {None: "null", True: "true", False: "false"}[value]
    elif isinstance(value, float) and float(f"{value:g}") == value:
        value = f"{value:g}"
    elif isinstance(value, list):
        value = f"[{', '.join(map(str, value))}]"
    return f"{key}{' ' if key.startswith('-') else '='}{value}"


MISTAKES: dict[str, type[ConfigurationError]] = {
    each.code: each for each in (ConfigurationError, WrongValue, UnknownName, Unavailable, WaitExpired)
}  # by code, which is also the name of the class


class RunFailed(RuntimeError):
    """A run, or another program of this project, failed; ``failure`` says where and how."""

    exit_code = ExitCode.FAILED
    reported = False  # whether it has been printed
    answer: Any = None  # the command's answer, as far as it is known

    def __init__(self, failure: Failure):
        super().__init__(failure.describe())
        self.failure = failure

    def __reduce__(self) -> tuple[type, tuple[Failure], dict]:
        """For pickling: sent from the process of a job to that of its sweep."""
        return type(self), (self.failure,), self.__dict__


class Interrupted(BaseException):
    """A signal stopped the run. Not an Exception, so that Hydra ends a sweep instead of continuing it."""

    code: ClassVar[Code] = Code.INTERRUPTED

    def __init__(self, signum: int):
        super().__init__(f"interrupted by {signal.Signals(signum).name}")
        self.signum = signum
        self.exit_code = 128 + signum
        self.answer: Any = None  # the command's answer, as far as it is known

    def __reduce__(self) -> tuple[type, tuple[Any]]:
        return type(self), (self.signum,)


class BudgetSpent(Interrupted):
    """A budget is spent: nothing was started, or what ran has stopped. Once there is more of it, that can be resumed.

    As after a signal, nothing has failed, and what has been done is kept.
    """

    code = Code.SPENT

    def __init__(self, message: str):
        super().__init__(signal.SIGTERM)
        self.args = (message,)
        self.exit_code = ExitCode.SPENT

    def __reduce__(self) -> tuple[type, tuple[Any]]:
        return type(self), self.args


class Ended(SystemExit):
    """The end of a command. Not an Exception, which Hydra would catch and report in its own words.

    ``error``: the error that is still to be printed; None if there is none.
    """

    def __init__(self, exit_code: int, error: Exception | None = None):
        super().__init__(exit_code)
        self.exit_code, self.error = exit_code, error
        self.answer: Any = None  # the command's answer, as far as it is known


def report(error: ConfigurationError | RunFailed) -> None:
    """Print a failure, unless it has been printed: the rank's traceback, if there is one, and then the message."""
    if error.reported:
        return
    error.reported = True
    if isinstance(error, RunFailed) and error.failure.traceback and error.failure.kind is not Kind.DIVERGED:
        print(printable_text(error.failure.traceback.rstrip()), file=sys.stderr)
    complain(str(error))


def complain(message: str) -> None:
    """Print an error in the format of all commands of this project."""
    print(filled(f"error: {printable_text(message)}"), file=sys.stderr)


@cache
def warn(message: str) -> None:
    """Print a warning once per process, however many jobs it concerns."""
    print(filled(f"warning: {printable_text(message)}"), file=sys.stderr)


def filled(text: str, stream: TextIO | None = None) -> str:
    """A text for a stream, by default stderr: on a terminal, wrapped between words, but not within backticks."""
    try:
        width = os.get_terminal_size((stream or sys.stderr).fileno()).columns
    except (OSError, ValueError, AttributeError):  # not a terminal, or not a file
        return text
    joined = re.sub("`[^`]*`", lambda quoted: quoted[0].replace(" ", "\0"), text)
    filler = textwrap.TextWrapper(max(width, 20), expand_tabs=False, break_long_words=False, break_on_hyphens=False)
    lines = [filler.wrap(line) or [""] for line in joined.split("\n")]
    return "\n".join(part for line in lines for part in line).replace("\0", " ")


def printable(value: object) -> str:
    """A value, such as a name, safe to print in a line: line breaks, control and reordering characters are escaped."""
    if (text := str(value)).isprintable():
        return text
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text)


def printable_text(value: object) -> str:
    """As ``printable``, of a text with several lines."""
    return re.sub(r"[^\n\t]+", lambda line: printable(line[0]), str(value))
