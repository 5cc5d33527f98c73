"""GPT-2 of 124M parameters: seconds of an update by a loop by hand and by ours, in turns in one process."""

import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy

from manyheads.runner.model.rank.gpt import GPT
from tests.in_process import attempt, config


@dataclass(frozen=True)
class Work:
    """``steps``: that are timed, after ``warm`` others."""

    device: str = "cuda"
    size: str = "small"
    batch: int = 32
    tokens: int = 1024
    vocabulary: int = 50304
    steps: int = 20
    warm: int = 8

    def synchronize(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()


REHEARSAL = Work(device="cpu", size="nano", batch=2, tokens=16, vocabulary=256, steps=2, warm=1)


def by_hand(work: Work) -> float:
    torch.manual_seed(0)
    model = GPT(num_classes=work.vocabulary, size=work.size).to(work.device).train()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=0.01, fused=True)
    batches = [torch.randint(256, (work.batch, work.tokens + 1)) for _ in range(4)]
    if work.device == "cuda":
        batches = [batch.pin_memory() for batch in batches]
    began = time.perf_counter()
    for step in range(work.warm + work.steps):
        if step == work.warm:
            work.synchronize()
            began = time.perf_counter()
        batch = batches[step % 4].to(work.device, non_blocking=True)
        with torch.autocast(work.device, torch.bfloat16):
            loss = cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    work.synchronize()
    return (time.perf_counter() - began) / work.steps


def ours(work: Work) -> float:
    overrides = (
        *("model=gpt", f"model.size={work.size}", f"model.num_classes={work.vocabulary}", "task=language_model"),
        *("data=stdlib_text", f"data.block_size={work.tokens}", f"data.batch_size={work.batch}", "optimizer=adamw"),
        *("precision=bf16", "trainer.clip_norm=1.0", f"trainer.device={work.device}", "trainer.evaluate_every=0"),
        *(f"trainer.max_steps={work.warm + work.steps}", "checkpoint.every=0", "logger=[]"),
    )
    moments: dict[int, float] = {}

    def watch(step: int) -> bool:
        if step in (work.warm, work.warm + work.steps):
            work.synchronize()
            moments[step] = time.perf_counter()
        return False

    with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w") as nowhere:
        trainer = attempt(Path(folder) / "run", config(*overrides)).trainer
        trainer.update.prime(trainer.train.example, warm_up=True)
        shown, sys.stdout = sys.stdout, nowhere
        try:
            trainer.fit(lambda **_: None, due_after_step=watch)
        finally:
            sys.stdout = shown
            trainer.close()
    return (moments[work.warm + work.steps] - moments[work.warm]) / work.steps


def ratio(work: Work) -> tuple[float, float]:
    """Time of ours divided by that by hand, and by how much the two times by hand differ, relative to the shorter."""
    loops: dict[str, Callable[[Work], float]] = {"by hand": by_hand, "ours": ours}
    seconds: dict[str, list[float]] = {name: [] for name in loops}
    for name in ("by hand", "ours", "by hand", "ours"):
        seconds[name].append(loops[name](work))
        speed = work.batch * work.tokens / seconds[name][-1]
        print(f"{name:8s} {1000 * seconds[name][-1]:8.1f} ms {speed:12,.0f} tokens/s", flush=True)
    hand = seconds["by hand"]
    return min(seconds["ours"]) / min(hand), max(hand) / min(hand) - 1
