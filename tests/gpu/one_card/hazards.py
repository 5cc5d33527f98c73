"""What is known to go wrong on GPUs: exchanges that wait for each other, hidden waits, chance, ranks that die."""

import os
import signal
import subprocess
import time
from contextlib import closing
from pathlib import Path

import psutil
import torch

from manyheads.runner.run.run_folder import RunFolder
from tests.gpu.one_card.findings import FAILED, LEFT_OUT, ROOT, Findings, execute, last_line, train
from tests.gpu.one_card.matrix import PRECISIONS, STRATEGIES, Card
from tests.in_process import attempt, config

LATEST = 60  # s until a run has made its first updates, and until it has ended after a fault


def evaluate_large(card: Card, findings: Findings) -> None:
    """Evaluation by a pipeline with several stages on each rank, with activations beyond NCCL's own buffers."""
    width, tokens = (16, 8) if card.rehearses else (1024, 1024)  # 64 MB for the 16 sequences of a micro-batch
    sizes = {"model.width": width, "+data.length": tokens, "data.batch_size": 64, "model.heads": 4}
    kept = [o for o in card.common() if o.partition("=")[0] not in sizes]
    overrides = (*STRATEGIES["pipeline, interleaved"], *PRECISIONS["bf16"], *kept)
    ranks = (f"launcher.nproc_per_node={card.ranks}", *(f"{key}={value}" for key, value in sizes.items()))
    _ends("evaluation by an interleaved pipeline", card, findings, *overrides, *ranks)


def repeat(card: Card, findings: Findings) -> None:
    """The same weights, to the bit, from the same run twice."""
    for strategy in ("ddp", "fsdp"):
        if reason := card.obstacle(strategy):
            findings.note(f"{strategy} twice", LEFT_OUT, reason)
            continue
        overrides = (*card.overrides(strategy, "bf16"), "trainer.deterministic=true")
        if card.rehearses and strategy == "ddp":
            continue  # one of them tells whether the overrides are right
        runs = [_ends(f"{strategy}, deterministic, {turn}", card, findings, *overrides) for turn in ("once", "again")]
        if None not in runs:
            digests = {run.read_result()["weights_sha256"] for run in runs if run}
            findings.judge(f"{strategy} twice", len(digests) == 1, "sha256 of the weights")


def watch_waits(card: Card, findings: Findings) -> None:
    """torch raises where an update waits for the GPU, from the sixth on."""
    options = (*card.overrides("single", "bf16"), "data.num_workers=0")
    with closing(attempt(card.folder / "waits", config(*options)).trainer) as trainer:
        example = trainer.train.example()
        trainer.update.model.train()
        try:
            for number in range(7):
                if number == 5 and not card.rehearses:
                    torch.cuda.set_sync_debug_mode("error")
                trainer.update([example], number=number, wants_norm=False)
        except RuntimeError as error:
            findings.note("no wait in an update of a GPT", FAILED, str(error).splitlines()[0])
            return
        finally:
            if not card.rehearses:
                torch.cuda.set_sync_debug_mode("default")
    remark = "updates ran; nothing waits on CPUs" if card.rehearses else ""
    findings.judge("no wait in an update of a GPT", True, remark)


def hurt(card: Card, findings: Findings) -> None:
    """A rank is killed, or the run interrupted: one sentence, an exit status that is not 0, and no process left."""
    for fault, number in (("a killed rank", signal.SIGKILL), ("Ctrl-C", signal.SIGINT)):
        path = card.folder / "runs" / fault.replace(" ", "_")
        overrides = (*card.overrides("ddp", "bf16"), "trainer.epochs=10000", f"hydra.run.dir={path}")
        kept = [o for o in overrides if o != "trainer.epochs=1"]
        output = path.with_suffix(".log")
        output.parent.mkdir(parents=True, exist_ok=True)
        with output.open("wb") as file:
            run = subprocess.Popen(
                train(*kept), cwd=ROOT, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
            )
        try:
            _hurt(run, path, number, fault, card.ranks, findings)
        finally:
            if run.poll() is None:
                os.killpg(run.pid, signal.SIGKILL)
                run.wait()


def _hurt(run: subprocess.Popen, path: Path, number: int, fault: str, ranks: int, findings: Findings) -> None:
    steps = RunFolder(path).steps
    output, deadline = path.with_suffix(".log"), time.monotonic() + LATEST
    while not (steps.exists() and steps.read_text().count("\n") > 2):
        if run.poll() is not None or time.monotonic() > deadline:
            findings.note(fault, FAILED, f"the run made no update: {last_line(output)}")
            return
        time.sleep(0.2)
    members = _ranks_of(path)
    last = next(process for process in members if f"rank {ranks - 1}/{ranks} " in process.info["cmdline"][0])
    os.kill(last.pid if number == signal.SIGKILL else run.pid, number)
    try:
        code = run.wait(LATEST)
    except subprocess.TimeoutExpired:
        findings.note(fault, FAILED, f"the run had not ended {LATEST} s after it")
        return
    _, alive = psutil.wait_procs(members, timeout=10)
    findings.judge(
        fault, code != 0 and not alive, f"exit status {code}, {len(alive)} processes left: {last_line(output)}"
    )


def _ranks_of(path: Path) -> list[psutil.Process]:
    """The processes of the run's ranks, by the title that each has."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        title = " ".join(process.info["cmdline"] or ())
        if title.startswith("manyheads: rank ") and str(path) in title:
            found.append(process)
    return sorted(found, key=lambda process: process.pid)


def _ends(check: str, card: Card, findings: Findings, *overrides: str) -> RunFolder | None:
    """The folder of a run that completed; None if it did not, which is noted."""
    path = card.folder / "runs" / check.replace(", ", "-").replace(" ", "_")
    output = path.with_suffix(".log")
    code = execute(*train(*overrides, f"hydra.run.dir={path}"), log=output, timeout=100)
    why = "it hangs" if code == 124 else last_line(output)
    findings.judge(check, code == 0, "" if code == 0 else f"exit status {code}: {why}")
    return RunFolder(path) if code == 0 else None
