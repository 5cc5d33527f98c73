"""Updates in which the host must not wait for the GPU: torch raises where it does, on every rank, from the sixth on."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import chain, count, islice
from typing import Any, NoReturn

import torch

from manyheads.runner.loop import rank_main
from manyheads.runner.loop.build import build_unrecorded
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.run.heartbeat import Heartbeat
from manyheads.runner.run.run_folder import RunFolder
from tests.gpu.one_card.card import SHOWN, Card
from tests.gpu.one_card.findings import Findings
from tests.gpu.one_card.runs import Outcome, Run, judge

UPDATES, FIRST = 8, 5  # the first ones create what later ones use
SEGMENTATION = (
    *("task=segmentation", "model=custom", "model._target_=tests.task.zoo.Segmenter", "data=custom"),
    *("data._target_=tests.task.zoo.Masks", "data.batch_size=6", "metrics=[f1]", "precision=fp32", *SHOWN),
)
OF = "no wait in an update of "


def runs(card: Card) -> list[Run]:
    loader = "data.num_workers=0"
    text = {name: card.overrides(name, "bf16") for name in ("single", "pipeline, 1f1b")}
    works = {
        "a GPT": (*text["single"], loader),
        "segmentation": (*card.strategy("single"), *SEGMENTATION, f"trainer.device={card.device}", loader),
        "pipeline, 1f1b": (*text["pipeline, 1f1b"], loader),
    }
    return [Run(OF + name, options, main=__name__) for name, options in works.items() if not card.obstacle(name)]


def conclude(card: Card, outcomes: dict[str, Outcome | None], findings: Findings) -> None:
    for run in runs(card):
        if judge(card, run, outcomes[run.name], findings):
            findings.judge(run.name, True, "updates ran; nothing waits on CPUs" if card.rehearses else "on each rank")
    if reason := card.obstacle("pipeline, 1f1b"):
        findings.leave_out(f"{OF}pipeline, 1f1b", reason)


@contextmanager
def raising(device: torch.device) -> Iterator[None]:
    """A context in which torch raises a RuntimeError where the host waits for the GPU."""
    if device.type != "cuda":
        yield
        return
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def work(run: RunConfig, parallel: Any, folder: RunFolder, heartbeat: Heartbeat) -> None:
    with closing(build_unrecorded(run, parallel, folder, heartbeat)) as trainer:
        trainer.update.model.train()
        trainer.update.enter_epoch(0)
        updates = trainer.updates(chain.from_iterable(map(trainer.train.epoch, count())))
        for number, batches in enumerate(islice(updates, UPDATES)):
            if number < FIRST:
                trainer.update(batches, number=number, wants_norm=False)
            else:
                with raising(parallel.device):
                    trainer.update(batches, number=number, wants_norm=False)
    if parallel.rank == 0:
        folder.write_json(folder.result, {"status": "completed"})


def main(path: str) -> NoReturn:
    rank_main.main(path, work=work)
