"""How a job of a sweep ends, in the ledger's words."""

import signal
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from manyheads.runner.errors import ConfigurationError, Interrupted, Kind, RunFailed, Unavailable, report
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.run.ledger import Entry
from manyheads.runner.run.run_folder import RunFolder

Start = Callable[[Entry], object]


def settle(entry: Entry, start: Start) -> Entry:
    """Start a job and wait for it; the entry says how it ended. An exception is printed, and ends only this job."""
    try:
        value = start(entry)
    except Unavailable as reason:
        return entry.now("skipped", reason=str(reason))
    except Interrupted as reason:
        return entry.now("interrupted", reason=signal.Signals(reason.signum).name)
    except KeyboardInterrupt:
        return entry.now("interrupted", reason=signal.SIGINT.name)
    except SystemExit as end:
        if end.code in (None, 0):
            return entry.now("completed")
        return entry.now("failed", reason=f"the job called sys.exit({end.code!r})")
    except Exception as error:
        if isinstance(error, (ConfigurationError, RunFailed)):
            report(error)
        else:
            traceback.print_exc()
        return entry.now(
            "failed",
            reason=str(error) or type(error).__name__,
            out_of_memory=isinstance(error, RunFailed) and error.failure.kind is Kind.OUT_OF_MEMORY,
        )
    objective = float(value) if isinstance(value, (int, float)) else None
    return entry.now("completed", objective=objective)


def split(entry: Entry, sweep: Path) -> Entry | None:
    """The job with half the micro-batch and twice the accumulation, frozen in a new folder; None if impossible."""
    run = RunConfig.read(RunFolder(sweep / entry.folder))
    if run.batch_per_rank % 2:
        return None
    run = run.changed(trainer={"grad_accumulation": 2 * run.trainer.grad_accumulation})
    run = run.parallel.accumulating(run)
    times = 2 * entry.split
    folder = entry.folder.removesuffix(f"_split{entry.split}") + f"_split{times}"
    RunFolder(sweep / folder).write_config(run.written)
    return replace(entry.now("pending", reason=entry.reason), folder=folder, split=times)
