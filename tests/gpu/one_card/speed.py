"""D2: what ours costs beside loops by hand, copies of checkpoints, memory against estimates."""

import argparse
import json
import sys
import time
from pathlib import Path

from manyheads.runner.run.run_folder import RunFolder
from tests.benchmarks.gpu.__main__ import chosen
from tests.benchmarks.gpu.case import cases
from tests.gpu.one_card import copies, language_model
from tests.gpu.one_card.findings import FAILED, LEFT_OUT, PASSED, Findings, execute, last_line, train

MODELS, ROWS = "resnet50,vit_b_16", "ready by hand bf16,ready timm bf16,ready manyheads bf16"
SLOWER, MEMORY, PINNED = 1.03, (1.00, 1.10), 5.0  # the thresholds

UNMEASURED = ("took more than", "the minutes are over", "failed")  # what the benchmark says of such rows


def loops(folder: Path, findings: Findings, *, rehearses: bool) -> None:
    """The benchmark of loops over images, by hand and ours."""
    words = ["--models", MODELS, "--rows", ROWS, "--minutes", "2.3"]
    if rehearses:
        for word in ROWS.split(","):
            findings.judge(f"rows of the benchmark: {word}", bool(chosen(cases(MODELS.split(","), full=False), word)))
        tiny = ("--batch-size", "2", "--steps", "2", "--minutes", "0.9")
        words = ["--device", "cpu", "--rows", "ready manyheads fp32", *tiny]
    log = folder / "loops.log"
    code = execute(sys.executable, "-m", "tests.benchmarks.gpu", *words, log=log, timeout=170)
    if code:
        findings.note("loops over images", FAILED, last_line(log))
        return
    text = log.read_text()
    ratios = [line for line in text.splitlines() if "manyheads takes" in line and "loop by hand (" in line]
    if rehearses:
        lacks = next((words for words in UNMEASURED if words in " ".join(text.split())), "")
        findings.judge("loops over images", "written to outputs/" in text and not lacks, lacks or "ran to its end")
    elif not ratios:
        findings.note("loops over images", FAILED, "no ratio: see loops.log")
    for line in ratios:
        ratio = float(line.partition("takes ")[2].split()[0])
        findings.judge(line.partition(":")[0], ratio <= SLOWER, f"{ratio:.3f} of the time by hand, allowed {SLOWER}")


def gpt(findings: Findings, *, rehearses: bool) -> None:
    ratio, drift = language_model.ratio(language_model.REHEARSAL if rehearses else language_model.Work())
    remark = f"{ratio:.3f} of the time by hand, allowed {SLOWER}; by hand twice: {drift:.1%} apart"
    if rehearses:
        findings.note("GPT-2 124M", PASSED, f"ran to its end; {remark}")
    elif drift > 0.02:
        findings.note("GPT-2 124M", LEFT_OUT, f"the card's clocks changed: {remark}")
    else:
        findings.judge("GPT-2 124M", ratio <= SLOWER, remark)


def checkpoints(findings: Findings, *, rehearses: bool) -> None:
    faster = copies.ratio(rehearses=rehearses)
    if rehearses:
        findings.judge("copies of checkpoints", faster is None, "ran to its end")
    else:
        findings.judge("copies of checkpoints", (faster or 0) >= PINNED, f"pinned {faster:.1f} times as fast")


def memory(folder: Path, findings: Findings, *, rehearses: bool) -> None:
    """The peak of a run against its estimate."""
    size, batch, tokens = ("nano", 4, 16) if rehearses else ("small", 16, 1024)
    overrides = (
        *("model=gpt", f"model.size={size}", "task=language_model", "data=stdlib_text", f"data.block_size={tokens}"),
        *(f"data.batch_size={batch}", "optimizer=adamw", "precision=bf16", "trainer.max_steps=8", "logger=[]"),
        *("trainer.evaluate_every=0", "checkpoint.every=0", f"trainer.device={'cpu' if rehearses else 'cuda'}"),
    )
    log, run = folder / "estimate.json", folder / "memory"
    command = (sys.executable, "-m", "manyheads.runner", "estimate", *overrides, "--json")
    if execute(*command, log=log, timeout=100):
        findings.note("memory against the estimate", FAILED, last_line(log))
        return
    estimate = peak_of(log.read_text())
    if execute(*train(*overrides, f"hydra.run.dir={run}"), log=folder / "memory.log", timeout=100) or not estimate:
        findings.note("memory against the estimate", FAILED, last_line(folder / "memory.log"))
        return
    peak = max(RunFolder(run).read_result()["peak_memory_mb"])
    remark = f"peak {peak:,.0f} MB, estimate {estimate:,.0f} MB"
    if rehearses:
        findings.note(
            "memory against the estimate", PASSED, f"ran to its end; {remark}, which is the process's on a CPU"
        )
    else:
        findings.judge("memory against the estimate", MEMORY[0] <= peak / estimate <= MEMORY[1], remark)


def peak_of(text: str) -> float:
    """The estimated peak in MB, from the command's JSON."""
    answer, _ = json.JSONDecoder().raw_decode(text[text.index("{") :])
    return float(answer["result"]["estimates"][0]["holds"][0]["total"]) / 1e6


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.one_card.speed", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rehearse", action="store_true", help="on a CPU, with tiny sizes, which judges no speed")
    given, start, findings = parser.parse_args(), time.monotonic(), Findings()
    folder, rehearses = given.folder.absolute(), given.rehearse
    gpt(findings, rehearses=rehearses)
    checkpoints(findings, rehearses=rehearses)
    memory(folder, findings, rehearses=rehearses)
    loops(folder, findings, rehearses=rehearses)
    findings.show(f"D2 on {'a CPU, a rehearsal' if rehearses else 'one card'}: {time.monotonic() - start:.0f} s")
    return findings.code


if __name__ == "__main__":
    raise SystemExit(main())
