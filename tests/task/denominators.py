"""What updates and an evaluation of each task come to, on any number of ranks."""

import json
from contextlib import closing
from functools import cache
from typing import Any, NoReturn

import torch

from manyheads.runner.loop import rank_main as worker
from manyheads.runner.loop.build import build_unrecorded
from manyheads.runner.loop.guards.guard import observed_gradients
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.run.run_folder import RunFolder
from tests.in_process import small

NO_DROPOUT = [f"+model.config.{name}_pdrop=0" for name in ("resid", "embd", "attn")]
GPT2 = (
    *("model._target_=transformers.GPT2LMHeadModel", "+model.config._target_=transformers.GPT2Config"),
    *("+model.config.n_layer=1", "+model.config.n_head=2", "+model.config.n_embd=8", "+model.config.n_positions=8"),
    *("+model.config.vocab_size=17", "+model.config.bos_token_id=0", "+model.config.eos_token_id=0", *NO_DROPOUT),
)
LINEAR, TABLES = "model._target_=tests.task.zoo.Linear", "data._target_=tests.task.zoo.Tables"
CLASSES = ("task=classification", LINEAR, "data._target_=tests.task.zoo.Classes")
PLAIN = (
    *("task=own_loss", "model._target_=tests.task.zoo.PlainGPT", "data._target_=tests.task.zoo.Shifted"),
    *("+model.config._target_=tests.task.zoo.PlainConfig", "+model.config.vocab_size=17"),
)
TASKS: dict[str, tuple[str, ...]] = {
    "classification": CLASSES,
    "ignored classes": (*CLASSES, "+loss.ignore_index=2"),
    "unlabelled samples": ("task=classification", LINEAR, "data._target_=tests.task.zoo.Unlabelled"),
    "weighted classes": (*CLASSES, "+loss.weight=[1,2,3,4,5,6,7]"),
    "multilabel": ("task=multilabel", LINEAR, "data._target_=tests.task.zoo.Labels", "metrics=[auroc]"),
    "unknown labels": (
        *("task=multilabel", "task.ignore_index=-1", LINEAR, "data._target_=tests.task.zoo.Unknown"),
        "metrics=[auroc]",
    ),
    "regression": ("task=regression", LINEAR, TABLES),
    "regression by sums": ("task=regression", LINEAR, TABLES, "+loss.reduction=sum"),
    "segmentation": (
        *("task=segmentation", "model._target_=tests.task.zoo.Segmenter", "data._target_=tests.task.zoo.Masks"),
        "metrics=[f1]",
    ),
    "language_model": (
        *("task=language_model", "model._target_=tests.task.language.Tiny"),
        "data._target_=tests.task.language.Padded",
    ),
    "weighted tokens": (
        *("task=language_model", "model._target_=tests.task.language.Tiny", "+loss.label_smoothing=0.1"),
        *("data._target_=tests.task.language.Padded", "+loss.weight=[1,2,3,4,5,6,7,8,9,10,11]"),
    ),
    "own loss": (
        *("task=own_loss", "task.loss_over=next_tokens", "model._target_=tests.task.zoo.OwnLoss"),
        "data._target_=tests.task.zoo.Causal",
    ),
    "own loss of a tuple": (*PLAIN, "task.ignore_index=-1"),
    "own loss as a sum": (*PLAIN, "task.ignore_index=-1", "task.reduction=sum", "+model.reduction=sum"),
    "own loss of samples": (
        *("task=own_loss", "task.loss_over=samples", "model._target_=tests.task.zoo.OwnStep"),
        *("data._target_=tests.task.zoo.Tables", "+task.metrics.error=min"),
    ),
}
OF_TRANSFORMERS = ("task=own_loss", "task.loss_over=next_tokens", *GPT2, "data._target_=tests.task.zoo.Causal")
SHARED = (
    *("data=custom", "model=custom", "precision=fp64", "data.num_workers=0", "data.drop_last=false"),
    *("data.batch_size=18", "optimizer.lr=0.1", "scheduler=constant"),
)


@cache
def config_of(*task: str) -> dict[str, Any]:
    return small(*SHARED, *task)


def configs(*strategy: str, tasks: dict[str, tuple[str, ...]] = TASKS) -> dict[str, dict[str, Any]]:
    """Each task with 1 and with 3 micro-batches; composed once, since that takes longer than all the rest."""
    placed = small(*SHARED, *CLASSES, *strategy) if strategy else {}
    found = {}
    for name, overrides in tasks.items():
        config = config_of(*overrides) | {group: placed[group] for group in ("parallel", "launcher") if placed}
        for accumulation in (1, 3):
            trainer = config["trainer"] | {"grad_accumulation": accumulation}
            found[f"{name}, {accumulation} micro-batches"] = config | {"trainer": trainer}
    return found


def look(config: dict[str, Any], parallel: Any, folder: RunFolder, heartbeat: Any) -> dict[str, Any]:
    """Losses and gradients of one epoch, whose last batch is incomplete, and what is measured after it."""
    trainer = build_unrecorded(RunConfig.of(config), parallel, folder, heartbeat)
    losses, gradients = [], []
    with closing(trainer):
        update, model = trainer.update, parallel.unwrap(trainer.update.model)

        def keep() -> None:
            gradients.append({name: p.grad.clone() for name, p in model.named_parameters()})

        for number, batches in enumerate(trainer.updates(trainer.train.epoch(0))):
            with observed_gradients(update.guards, keep):
                made = update(batches, number=number, wants_norm=False)
            sums = torch.zeros(2, dtype=torch.float64)
            for each in made.passes:
                sums += torch.tensor([float(each.loss) * each.scale, each.counted], dtype=torch.float64)
            total, count = parallel.reduce(sums).tolist()
            losses.append(total / count)
        measured, _ = trainer.evaluation.run()
    return {"losses": losses, "gradients": gradients, "measured": measured}


def work(_: RunConfig, parallel: Any, folder: RunFolder, heartbeat: Any) -> None:
    every = json.loads((folder.path / "configs.json").read_text())
    found = {name: look(each, parallel, folder, heartbeat) for name, each in every.items()}
    if parallel.rank == 0:
        torch.save(found, folder.path / "found.pt")
        folder.write_json(folder.result, {"status": "completed"})


def main(path: str) -> NoReturn:
    worker.main(path, work=work)
