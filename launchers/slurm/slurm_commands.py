"""Commands to Slurm: sbatch, scancel, and scontrol, since many sites have no accounting.

Source: https://slurm.schedmd.com/, the manual pages of these commands; tested with Slurm 22.05.
"""

import re
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from manyheads.runner.errors import ConfigurationError, Failure, Interrupted, Kind, RunFailed, printable
from manyheads.runner.run.program import Program, ProgramOutput

SECONDS, SHORT_SECONDS = 60.0, 5.0  # limit of a command; of one for a list of runs
UNREACHED = re.compile(r"contact slurm controller|connect(ion)? (failure|refused)", re.I)
AWAY = re.compile(r"timed out|try again", re.I)  # it may have taken the request
AGAIN_SECONDS = 5.0  # between two queries without an answer
PENDING, OVER = (
    ("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "CONFIGURING"),
    (
        *("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL", "BOOT_FAIL", "DEADLINE"),
        *("PREEMPTED", "REVOKED", "SPECIAL_EXIT"),
    ),
)
HOW_TO_GET = (
    "sbatch and scontrol are not on the PATH of this machine. Use a login node of the cluster, perhaps after "
    "`module load slurm`; on Debian they are in the package slurm-client"
)


@dataclass(frozen=True)
class Status:
    """A job as scontrol shows it. ``state``: GONE if the controller no longer knows it."""

    state: str
    reason: str = ""
    nodes: str = ""
    restarts: int = 0

    @property
    def is_over(self) -> bool:
        """Whether the job has ended and will not run again."""
        return self.state in OVER or self.state == "GONE"

    @property
    def is_waiting(self) -> bool:
        """Whether the job is still in the queue."""
        return self.state in PENDING

    def __str__(self) -> str:
        """The predicate of a sentence about the job."""
        if self.is_waiting:
            return f"waits in the queue{f' ({self.reason})' if self.reason else ''}"
        if self.state == "RUNNING":
            return f"runs on {self.nodes}"
        return f"is {self.state.lower().replace('_', ' ')}"


GONE = Status("GONE")


def missing() -> str | None:
    """Why Slurm cannot be asked from here, and how to get it."""
    return None if shutil.which("sbatch") and shutil.which("scontrol") else HOW_TO_GET


def version() -> str:
    """Slurm's name and version, as sbatch prints them."""
    return _run("sbatch", "--version").text.strip()


def submit(text: str, script: Path, signals: Sequence[int] = ()) -> str:
    """Submit a job; returns its number. ``text``: of ``script``, a file that others may be able to replace.

    Raises ConfigurationError if refused, RunFailed if Slurm does not answer, Interrupted after a signal.
    """
    absence = Absence(signals)
    while (done := _run("sbatch", "--parsable", given=text.encode())).code != 0:
        message = " ".join(done.errors.replace("sbatch: error:", "").split()).rstrip(".")
        if UNREACHED.search(message):
            absence.unanswered(message)
        elif AWAY.search(message):
            why = f"Slurm's controller did not answer, but may have the job: {message}. See `squeue --me`."
            raise RunFailed(Failure(Kind.UNREACHABLE, message=why))
        else:
            raise ConfigurationError(
                f"Slurm refused the job: {message}. See {script}, and launcher.partition, account, qos, time_limit, "
                "nodes, gpus_per_node, cpus_per_node and constraint."
            )
        time.sleep(AGAIN_SECONDS)
    return done.text.strip().splitlines()[-1].partition(";")[0]


def status(job: str, signals: Sequence[int] = ()) -> Status:
    """A job's status. Raises RunFailed if the controller does not answer, Interrupted after a signal."""
    absence = Absence(signals)
    while (state := status_now(job)) is None:
        absence.unanswered(f"no status of job {job}")
        time.sleep(AGAIN_SECONDS)
    return state


def status_now(job: str, *, seconds: float = SECONDS) -> Status | None:
    """A job's status; None if the controller does not answer within ``seconds``."""
    done = _run("scontrol", "show", "job", "-o", job, seconds=seconds)
    if done.code == 0 and "JobState=" in done.text:
        return parsed(done.text.splitlines()[0])
    return GONE if "Invalid job id" in done.errors else None


def parsed(line: str) -> Status:
    """Parse one line of scontrol."""
    fields = dict(word.partition("=")[::2] for word in line.split() if "=" in word)
    reason, nodes = (fields.get(key, "") for key in ("Reason", "NodeList"))
    without = {"None", "(null)", "N/A"}
    return Status(
        fields["JobState"],
        "" if reason in without else reason,
        "" if nodes in without else nodes,
        int(fields.get("Restarts", "0")),
    )


def gpus_per_node(job: str) -> int:
    """GPUs that a running job has on each of its nodes; the fewest on any of them."""
    shown = _run("scontrol", "show", "job", "-o", "-d", job).text
    on_nodes = re.findall(r" CPU_IDs=\S+ Mem=\S+ GRES=(\S*)", shown)
    return min((sum(map(int, re.findall(r"\bgpu(?::[^:,()]+)?:(\d+)", text))) for text in on_nodes), default=0)


def cancel(job: str) -> None:
    """Remove a job from the queue, or end it."""
    _run("scancel", job)


def ask_to_stop(job: str, signal: str) -> bool:
    """Send a signal to a running job's batch script alone; returns whether Slurm took it."""
    return _run("scancel", "--batch", f"--signal={signal}", job).code == 0


def requeue(job: str) -> str | None:
    """Requeue a job; returns why Slurm refuses, None if it does not."""
    done = _run("scontrol", "requeue", job)
    return None if done.code == 0 else " ".join(done.errors.split()) or "no reason given"


def host_names(listed: str) -> list[str]:
    """The names of nodes that Slurm lists as n[1-2,7]."""
    return _run("scontrol", "show", "hostnames", listed).text.split()


def addresses(nodes: list[str]) -> dict[str, str]:
    """The addresses by which Slurm itself reaches each node."""
    lines = _run("scontrol", "show", "node", "-o", ",".join(nodes)).text.splitlines()
    rows = [dict(word.partition("=")[::2] for word in line.split() if "=" in word) for line in lines]
    return {row["NodeName"]: row.get("NodeAddr", row["NodeName"]) for row in rows if "NodeName" in row}


def _run(*command: str, given: bytes = b"", seconds: float = SECONDS) -> ProgramOutput:
    try:
        return Program(command).ask(given=given, seconds=seconds)
    except FileNotFoundError:
        raise ConfigurationError.at("launcher", "slurm", f": {HOW_TO_GET}.") from None


AWAY_SECONDS = 900.0


class Absence:
    """Limits the time without an answer of the controller; jobs continue. ``signals``: received by this process."""

    def __init__(self, signals: Sequence[int]):
        self._signals = signals
        self._deadline: float | None = None

    def unanswered(self, message: str) -> None:
        """Called for each query without an answer.

        Raises Interrupted after a signal, RunFailed after ``AWAY_SECONDS``.
        """
        if self._signals:
            raise Interrupted(self._signals[0])
        if self._deadline is None:
            self._deadline = time.monotonic() + AWAY_SECONDS
            minutes = f"{AWAY_SECONDS / 60:g} minutes"
            print(f"Slurm's controller does not answer; asking again for {minutes}: {printable(message)}", flush=True)
        elif time.monotonic() > self._deadline:
            raise RunFailed(Failure(Kind.UNREACHABLE, message=f"Slurm's controller does not answer: {message}."))

    def ended(self) -> None:
        """Called for each answer."""
        self._deadline = None
