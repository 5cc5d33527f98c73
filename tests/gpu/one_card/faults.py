"""A rank is killed, a run interrupted, or a rank hangs: one sentence, an exit status that is not 0, no process left."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil

from manyheads.runner.run.run_folder import RunFolder
from tests.gpu.one_card.card import SHOWN, Card, replaced
from tests.gpu.one_card.findings import FAILED, ROOT, Findings, last_line, train
from tests.gpu.one_card.runs import Run

LATEST = 60  # s until a run has made its first updates, or ended after a fault; in a rehearsal five times that
TIMEOUT = 20  # s, of parallel.timeout
HUNG = 1  # the rank that hangs
KILLED, INTERRUPTED, HANGING = "a killed rank", "Ctrl-C", "a hung rank"


def runs(card: Card) -> list[Run]:
    endless = replaced(card.overrides("ddp", "bf16"), trainer__epochs=10000)
    hanging = (
        *("model=custom", "model._target_=tests.launchers.faulty.Faulty", "+model.how=sleep", f"+model.rank={HUNG}"),
        *("+model.step=5", "data=synthetic", "data.image_size=8", "data.batch_size=48", "trainer.log_every=1"),
        *(f"parallel.timeout={TIMEOUT}", f"trainer.device={card.device}", *SHOWN),
    )
    return [Run(KILLED, endless), Run(INTERRUPTED, endless), Run(HANGING, (*card.strategy("ddp"), *hanging))]


def check(card: Card, findings: Findings) -> None:
    with ThreadPoolExecutor(1 if card.rehearses else 3) as pool:
        list(pool.map(lambda run: _check(card, run, findings), runs(card)))


def _check(card: Card, run: Run, findings: Findings) -> None:
    if not card.left:
        findings.leave_out(run.name, "the minutes are over")
        return
    path = run.folder(card).path
    output = path.with_suffix(".log")
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.open("wb") as file:
        command = train(*run.overrides, f"hydra.run.dir={path}")
        process = subprocess.Popen(command, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        _hurt(process, card, run, findings)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _hurt(process: subprocess.Popen, card: Card, run: Run, findings: Findings) -> None:
    path = run.folder(card).path
    log, latest = path.with_suffix(".log"), LATEST * (5 if card.rehearses else 1)
    members: list[psutil.Process] = []

    def trains() -> bool:
        members[:] = _members_of(path)
        return len(members) >= card.ranks and (run.name == HANGING or _updates(path) > 1)

    if not _waited(lambda: process.poll() is not None or trains(), latest) or process.poll() is not None:
        findings.note(run.name, FAILED, f"the run made no update: {last_line(log)}")
        return
    if run.name == KILLED:
        title = f"rank {card.ranks - 1}/{card.ranks} "
        next(process for process in members if title in process.info["cmdline"][0]).kill()
    elif run.name == INTERRUPTED:
        os.kill(process.pid, signal.SIGINT)
    if not _waited(lambda: process.poll() is not None, latest):
        findings.note(run.name, FAILED, f"the run had not ended {latest} s after it")
        return
    _, alive = psutil.wait_procs(members, timeout=10)
    _, named, operation = log.read_text(errors="replace").partition(f"Rank {HUNG} had not reached")
    is_named = run.name != HANGING or bool(named)
    said = named + operation.partition("\n")[0] if named else last_line(log)
    remark = f"exit status {process.returncode}, {len(alive)} processes left: {said}"
    findings.judge(run.name, process.returncode != 0 and not alive and is_named, remark)


def _updates(path: Path) -> int:
    steps = RunFolder(path).steps
    return steps.read_text().count("\n") - 1 if steps.exists() else 0


def _waited(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether the condition came true within so many seconds."""
    deadline = time.monotonic() + seconds
    while not (is_met := condition()) and time.monotonic() < deadline:
        time.sleep(0.2)
    return is_met


def _members_of(path: Path) -> list[psutil.Process]:
    """The run's ranks and their loaders, which have the same titles, ranks first."""
    members = []
    for process in psutil.process_iter(["cmdline"]):
        title = " ".join(process.info["cmdline"] or ())
        if title.startswith("manyheads: rank ") and str(path) in title:
            members.append(process)
    return sorted(members, key=lambda process: process.pid)
