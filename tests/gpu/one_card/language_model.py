"""GPT-2 of 124M parameters: a loop by hand, ours, and ours under ddp with one rank, in turns in one process."""

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from unittest.mock import patch

import torch
from torch.nn.functional import cross_entropy

from manyheads.runner.model.rank.gpt import GPT
from tests.gpu.one_card.turns import BY_HAND, DDP, OURS, Loop, Times, in_turns
from tests.in_process import attempt, config

ONE_RANK = ("parallel=ddp", "launcher=inline", "launcher.nproc_per_node=1")


@dataclass(frozen=True)
class Work:
    """``steps``: that are timed, after ``warm`` others."""

    device: str = "cuda"
    size: str = "small"
    batch: int = 32
    tokens: int = 1024
    vocabulary: int = 50304
    steps: int = 16
    warm: int = 6

    @property
    def end(self) -> int:
        return self.warm + self.steps

    def synchronize(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()


REHEARSAL = Work(device="cpu", size="nano", batch=2, tokens=16, vocabulary=256, steps=2, warm=1)


def times(*, compiles: bool, rehearses: bool) -> Times:
    work = REHEARSAL if rehearses else Work()
    loops: dict[str, Loop] = {BY_HAND: partial(by_hand, work, compiles=compiles)}
    loops[OURS] = partial(ours, work, compiles=compiles)
    if not compiles:
        loops[DDP] = partial(ours, work, *ONE_RANK)
    return in_turns(loops)


def by_hand(work: Work, *, compiles: bool) -> float:
    torch.manual_seed(0)
    with torch.device(work.device):
        model = GPT(num_classes=work.vocabulary, size=work.size).train()
    if compiles:
        model.compile()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=0.01, fused=True)
    batches = [torch.randint(256, (work.batch, work.tokens + 1)) for _ in range(4)]
    if work.device == "cuda":
        batches = [batch.pin_memory() for batch in batches]
    began = time.perf_counter()
    for step in range(work.end):
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


def overrides(work: Work) -> tuple[str, ...]:
    return (
        *("model=gpt", f"model.size={work.size}", f"model.num_classes={work.vocabulary}", "task=language_model"),
        *("data=stdlib_text", f"data.block_size={work.tokens}", f"data.batch_size={work.batch}", "optimizer=adamw"),
        *(f"data.max_tokens={2 * work.batch * (work.tokens + 1) * (work.end + 1)}", "precision=bf16"),
        *("trainer.clip_norm=1.0", f"trainer.device={work.device}", "trainer.evaluate_every=0"),
        *(f"trainer.max_steps={work.end}", "checkpoint.every=0", "logger=[]"),
    )


def ours(work: Work, *more: str, compiles: bool = False) -> float:
    moments: dict[int, float] = {}

    def watch(step: int) -> bool:
        if step in (work.warm, work.end):
            work.synchronize()
            moments[step] = time.perf_counter()
        return False

    options = (*overrides(work), f"trainer.compile={'default' if compiles else 'none'}", *more)
    with tempfile.TemporaryDirectory() as folder, _quiet():
        meeting = patch.dict(os.environ, {"MANYHEADS_MEETING": f"{folder}/meeting"})
        with meeting:
            session = attempt(Path(folder) / "run", config(*options))
            trainer = session.trainer
            try:
                trainer.update.prime(trainer.train.example, warm_up=True)
                trainer.fit(lambda **_: None, due_after_step=watch)
            finally:
                trainer.close()
                session.parallel.leave()
    return (moments[work.end] - moments[work.warm]) / work.steps


@contextmanager
def _quiet() -> Iterator[None]:
    """A context without what a run prints."""
    with open(os.devnull, "w") as nowhere, patch.object(sys, "stdout", nowhere):
        yield
