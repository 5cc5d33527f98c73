"""The end of every command: prints its answer or error, as text or as JSON, and determines the exit code."""

import errno
import io
import json
import logging
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from manyheads import __version__
from manyheads.runner.errors import (
    NO_OUTPUT,
    Code,
    ConfigurationError,
    Ended,
    ExitCode,
    Interrupted,
    Kind,
    RunFailed,
    complain,
    lost_output,
    printable_text,
)
from manyheads.runner.run import yaml_text
from manyheads.runner.run.answer import REPLY_TO, Answer, Problem, Reply, reserve_stdout
from manyheads.runner.run.files import FAILED, FULL

UNREAD = f"{NO_OUTPUT}: {os.strerror(errno.EPIPE)}"  # a run's message if nobody reads its output any more
OF_DISK = (*FULL, *FAILED, errno.EACCES, errno.EPERM)
USAGE = "the command line cannot be parsed; stderr says why"


@dataclass(frozen=True)
class End:
    """The end of a command. ``shown``: whether ``error`` has been printed."""

    code: int
    answer: Answer | None = None
    error: Problem | None = None
    shown: bool = False


def respond(command: str, call: Callable[[], Answer | None], *, as_json: bool = False) -> int:
    """Call a command, print its answer or its error, and return the exit code of the process.

    as_json: print a ``Reply`` on stdout; whatever else is printed meanwhile goes to stderr. A parent process that wants
    the reply (``run_command``) gets it in a file, and prints the error itself.
    """
    reply_file = os.environ.pop(REPLY_TO, None)  # for this process alone, not for those that it starts
    out = reserve_stdout() if as_json else None
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it announces its font cache, and temporary folders
    end = _ended(call, show=not as_json)
    if (lost := _unflushed()) is not None and end.error is None:
        end = _without_output(lost, end.answer)
    if reply_file is None and out is None:
        if end.error is not None and not end.shown:
            _print(end.error)
        return end.code
    from manyheads.runner.run.json_schema import to_json

    content = to_json(Reply(__version__, command, int(end.code), end.answer, end.error))
    reply = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    if reply_file is not None:
        Path(reply_file).write_text(reply, encoding="utf-8")
    if out is not None:
        try:
            with out:
                out.write(reply)
        except OSError as lost:
            end = _without_output(lost, end.answer)
            if not end.shown and end.error is not None:
                _print(end.error)
    return end.code


def _unflushed() -> OSError | None:
    """Flush standard output; return the error if that fails, and redirect it to /dev/null.

    Otherwise Python would report the error when it exits, in its own words and with its own exit code.
    """
    try:
        sys.stdout.flush()
    except OSError as error:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        return error
    return None


def _without_output(lost: OSError, answer: Answer | None) -> End:
    """The end of a command whose output is lost. If the reader is gone, nothing is printed about it."""
    problem = Problem(Code.DISK, f"{NO_OUTPUT}: {lost.strerror}")
    return End(ExitCode.FAILED, answer, problem, shown=isinstance(lost, BrokenPipeError))


def _ended(call: Callable[[], Answer | None], *, show: bool) -> End:
    answer: Answer | None = None
    try:
        answer = call()
        if show and answer is not None:
            answer.show()
        return End(ExitCode.DONE if answer is None else answer.exit_code, answer)
    except Ended as end:
        return End(end.exit_code, end.answer) if end.error is None else _of_error(end.error, end.answer)
    except Interrupted as stop:
        return End(stop.exit_code, stop.answer, Problem.of(stop))
    except KeyboardInterrupt as stop:
        return End(ExitCode.INTERRUPTED, answer, Problem.of(stop))
    except SystemExit as end:  # raised by a parser, which has printed the usage or the help
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        return End(code, error=Problem(Code.MISTAKE, USAGE) if code else None, shown=True)
    except Exception as error:
        return _of_error(error, getattr(error, "answer", None))


def _of_error(error: Exception, answer: Answer | None) -> End:
    if isinstance(error, (ConfigurationError, RunFailed)):
        is_unread = isinstance(error, RunFailed) and error.failure.message.startswith(UNREAD)
        return End(error.exit_code, answer, Problem.of(error), shown=error.reported or is_unread)
    if (lost := lost_output(error)) is not None:
        return _without_output(lost, answer)
    if isinstance(error, OSError) and error.errno in OF_DISK and (name := error.filename or _written_file(error)):
        problem = Problem(Code.DISK, f"{name}: {error.strerror}")  # a traceback would not help
        return End(ExitCode.FAILED, answer, problem)
    if isinstance(error, yaml_text.Error):
        text = " ".join(str(error).split())
        return End(ExitCode.REFUSED, answer, Problem(Code.MISTAKE, f"a config cannot be read: {text}."))
    from manyheads.runner.config.hydra_errors import ERRORS_OF_HYDRA, explain, raised_by_hydra  # imports Hydra

    if isinstance(error, ERRORS_OF_HYDRA) or raised_by_hydra(error):
        return End(ExitCode.REFUSED, answer, Problem.of(explain(error)))
    trace = "".join(traceback.format_exception(error))
    return End(ExitCode.FAILED, answer, Problem(Kind.RAISED, f"{type(error).__name__}: {error}", traceback=trace))


def _written_file(error: OSError) -> str | None:
    """The file that was open where a library's write failed: the error of a full disk does not name it."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    files = (value for frame in reversed(frames) for value in frame.f_locals.values() if isinstance(value, io.IOBase))
    return next((name for file in files if isinstance(name := getattr(file, "name", None), str)), None)


def _print(error: Problem) -> None:
    """Print the traceback, if there is one, and then the message, so that it is seen."""
    if error.code is Kind.RAISED and error.traceback and error.rank is None and error.node is None:
        sys.stderr.write(error.traceback)  # its last line is the message
        return
    if error.code is Code.INTERRUPTED:
        kept = f"\n{printable_text(error.kept)}" if error.kept else ""
        print(f"\n{error.message}{kept}", file=sys.stderr)
        return
    if error.code is Code.SPENT:
        complain("\n".join(filter(None, (error.message, error.kept))))
        return
    if error.traceback and error.code is not Kind.DIVERGED:  # whose message names the keys to set
        print(printable_text(error.traceback.rstrip()), file=sys.stderr)
    complain(error.message)
