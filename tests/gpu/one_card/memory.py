"""The peak of a run on one card against its estimate, and what torch had reserved for it."""

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from manyheads.runner.run.run_folder import RunFolder
from tests.gpu.one_card.findings import FAILED, PASSED, Findings, execute, last_line, train

CLOSE, RESERVED, LEAST = (1.00, 1.10), 1.15, 1500.0  # of the estimate; of the peak; MB from which both are judged
COMMON = ("precision=bf16", "trainer.max_steps=8", "logger=[]", "trainer.evaluate_every=0", "checkpoint.every=0")
Overrides = tuple[str, ...]


def works(*, rehearses: bool) -> dict[str, Overrides]:
    """The overrides of each run, by what it trains."""
    size, batch, tokens = ("nano", 4, 16) if rehearses else ("small", 16, 1024)
    text = ("model=gpt", f"model.size={size}", "task=language_model", "data=stdlib_text", f"data.block_size={tokens}")
    name, images, pixels = ("resnet18", 4, 32) if rehearses else ("resnet50", 128, 224)
    photos = (f"model={name}", "data=synthetic", f"data.image_size={pixels}", f"data.train_samples={8 * images}")
    device = f"trainer.device={'cpu' if rehearses else 'cuda'}"
    read = (f"data.batch_size={batch}", "data.max_tokens=1000000", "optimizer=adamw")
    return {
        "GPT-2 124M": (*text, *read, *COMMON, device),
        "ResNet-50": (*photos, f"data.batch_size={images}", "trainer.channels_last=true", *COMMON, device),
    }


def check(folder: Path, findings: Findings, *, rehearses: bool, timeout: float) -> None:
    """Runs and estimates at the same time: memory does not depend on the clock."""
    commands = {}
    for name, overrides in works(rehearses=rehearses).items():
        path = folder / name.replace(" ", "_")
        estimate = (sys.executable, "-m", "manyheads.runner", "estimate")
        commands[path.with_suffix(".json")] = (*estimate, *overrides, "--json")
        commands[path.with_suffix(".log")] = train(*overrides, f"hydra.run.dir={path}")
    with ThreadPoolExecutor(1 if rehearses else len(commands)) as pool:
        codes = pool.map(lambda log: execute(*commands[log], log=log, timeout=timeout), commands)
        failed = {log: code for log, code in zip(commands, codes, strict=True) if code}
    for name in works(rehearses=rehearses):
        path = folder / name.replace(" ", "_")
        wrong = [log for log in (path.with_suffix(".json"), path.with_suffix(".log")) if log in failed]
        if wrong:
            findings.note(f"memory of {name}", FAILED, f"exit status {failed[wrong[0]]}: {last_line(wrong[0])}")
        else:
            judge(name, peak_of(path.with_suffix(".json").read_text()), path, findings, rehearses=rehearses)


def judge(name: str, estimate: float, path: Path, findings: Findings, *, rehearses: bool) -> None:
    result = RunFolder(path).read_result()
    peak, reserved = max(result["peak_memory_mb"]), max(result["reserved_memory_mb"], default=0)
    remark = f"peak {peak:,.0f} MB, estimate {estimate:,.0f} MB"
    if rehearses:
        findings.note(f"memory of {name}", PASSED, f"ran to its end; {remark}, which is the process's on a CPU")
        return
    ratio = peak / estimate
    is_large = peak >= LEAST
    findings.judge(f"memory of {name}", is_large and CLOSE[0] <= ratio <= CLOSE[1], f"{ratio:.3f}: {remark}")
    expandable = "" if reserved / peak <= RESERVED else "; set PYTORCH_ALLOC_CONF=expandable_segments:True"
    remark = f"{reserved / peak:.2f} times the peak, allowed {RESERVED}{expandable}"
    findings.judge(f"memory reserved for {name}", not expandable, remark)


def peak_of(text: str) -> float:
    """The estimated peak in MB of 2**20 bytes, as of ``peak_memory_mb``, from the command's JSON."""
    answer, _ = json.JSONDecoder().raw_decode(text[text.index("{") :])
    return float(answer["result"]["estimates"][0]["holds"][0]["total"]) / 2**20
