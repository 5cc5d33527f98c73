"""Assembly of a rank from the run config, in the one order that satisfies every backend."""

from typing import Any

import torch

from runner.attempt import Attempt
from runner.checkpoint import Checkpoints
from runner.data.build import build_data, build_loaders
from runner.data.loader import Entrance
from runner.determinism import operations_named, set_deterministic
from runner.display import Display, Terminal
from runner.errors import ConfigurationError
from runner.header import header
from runner.heartbeat import Heartbeat
from runner.instantiate import instantiate, locate
from runner.model.build import build_loss, build_model
from runner.optimizers import build_optimizer
from runner.parallel.base import Parallel
from runner.parity.probe import Probe
from runner.parity.task import read_task
from runner.precision.base import Precision
from runner.recorder import Files, Recorder
from runner.reporter import Reporter
from runner.rng import seed_everything
from runner.run_folder import RunFolder
from runner.schedulers import Schedule
from runner.settings import Settings
from runner.trainer import Trainer

Config = dict[str, Any]


@operations_named()
def run(config: Config, parallel: Parallel, folder: RunFolder, heartbeat: Heartbeat) -> None:
    """Train, or only evaluate, as the config says, or take parity's steps. Raises ConfigurationError."""
    checkpoints = Checkpoints(folder, every=config["checkpoint"]["every"], keep=config["checkpoint"]["keep"])
    if (task := read_task(folder)) is not None:
        probe = Probe(task, folder)
        trainer = build(config, parallel, folder, heartbeat, None, probe=probe)
        probe.run(Attempt(trainer, checkpoints=checkpoints, folder=folder), seed=config["seed"])
        return
    evaluate_only = config["trainer"]["evaluate_only"]
    state = None if evaluate_only else checkpoints.last(otherwise=config["checkpoint"]["resume"])
    trainer = build(config, parallel, folder, heartbeat, state)
    attempt = Attempt(trainer, checkpoints=checkpoints, folder=folder)
    if evaluate_only:
        attempt.evaluate()
    else:
        attempt.train(seed=config["seed"], state=state)


def join(config: Config, *, rank: int, local_rank: int, world_size: int) -> Parallel:
    """This rank's strategy, with all ranks met. Raises ConfigurationError."""
    set_process(config)
    device = config["trainer"]["device"]
    if device == "cuda" and torch.cuda.device_count() <= local_rank:
        raise ConfigurationError(
            f"trainer.device=cuda: torch {torch.__version__} finds {torch.cuda.device_count()} GPUs, and rank {rank} "
            f"wants number {local_rank}. Set launcher.nproc_per_node to fewer, or trainer.device=cpu."
        )
    place = {"rank": rank, "local_rank": local_rank, "world_size": world_size, "device_type": device}
    parallel: Parallel = instantiate("parallel", config["parallel"], **place)
    parallel.join()
    return parallel


def build(
    config: Config,
    parallel: Parallel,
    folder: RunFolder,
    heartbeat: Heartbeat,
    state: dict[str, Any] | None,
    *,
    probe: Probe | None = None,
) -> Trainer:
    """Everything that trains, in place. ``state``: the checkpoint that will be gone on from.

    ``probe``: sees the model before anything has changed it, in a run that shows and records nothing.
    """
    seed_everything(config["seed"])  # the same initial weights on every rank
    data = build_data(config["data"])
    precision: Precision = instantiate("precision", config["precision"], parallel)
    channels_last = config["trainer"]["channels_last"]
    model = build_model(config, data, dtype=precision.dtype)
    if probe is not None:
        probe.look(model)
    parameters = sum(p.numel() for p in model.parameters())
    model = precision.convert(model)
    if channels_last:
        model = model.to(memory_format=torch.channels_last)
    model = parallel.place(model)
    kind = locate("optimizer", config["optimizer"]["_target_"])
    optimizer = build_optimizer(kind, config["optimizer"], model, batch_size=config["data"]["batch_size"])
    optimizer = parallel.wrap_optimizer(optimizer, model)
    model, optimizer = precision.prepare(model, optimizer)
    model = parallel.wrap_model(model)
    if (mode := config["trainer"]["compile"]) != "none":
        model.compile(mode=mode)  # in place, so that the weights keep their names
    loss = build_loss(config).to(device=parallel.device, dtype=precision.dtype)
    entrance = Entrance(parallel.device, precision.dtype, channels_last, data.mean, data.std)
    train, evaluation = build_loaders(config, data, parallel, entrance)
    settings = build_settings(config["trainer"], train.updates)
    schedule: Schedule = instantiate(
        "scheduler", config["scheduler"], optimizer, updates_per_epoch=train.updates, total_updates=settings.total_steps
    )
    reporter = build_reporter(config, parallel, folder, state, silent=probe is not None)
    samples = (train.samples, evaluation.samples)
    reporter.display.header(
        header(config, folder, parallel, precision, parameters=parameters, samples=samples, classes=data.num_classes)
    )
    return Trainer(
        model=model,
        loss=loss,
        optimizer=optimizer,
        schedule=schedule,
        parallel=parallel,
        precision=precision,
        train=train,
        evaluation=evaluation,
        settings=settings,
        reporter=reporter,
        heartbeat=heartbeat,
    )


def build_reporter(
    config: Config, parallel: Parallel, folder: RunFolder, state: dict[str, Any] | None, *, silent: bool = False
) -> Reporter:
    """Rank 0's writes and speaks, the others' are mute; of an evaluation there are no rows to write."""
    recorder, display = Recorder(), Display()
    if parallel.rank == 0 and not silent:
        display = Terminal()
        if not config["trainer"]["evaluate_only"]:
            position, step = (state["tables"], state["progress"]["step"]) if state else ({}, 0)
            recorder = Files(folder, position=position, step=step)
    epochs, monitor = config["trainer"]["epochs"], config["checkpoint"]["monitor"]
    return Reporter(recorder=recorder, display=display, parallel=parallel, epochs=epochs, monitor=monitor)


def build_settings(trainer: Config, updates_per_epoch: int) -> Settings:
    total = trainer["epochs"] * updates_per_epoch
    total = min(total, trainer["max_steps"] or total)
    return Settings(
        epochs=trainer["epochs"],
        total_steps=total,
        last_step=min(total, trainer["stop_after"] or total),
        evaluate_every=trainer["evaluate_every"],
        grad_accumulation=trainer["grad_accumulation"],
        clip_norm=trainer["clip_norm"],
        log_every=trainer["log_every"],
        on_nan=trainer["on_nan"],
    )


def set_process(config: Config) -> None:
    """Settings of the whole process; all are set each time, since a sweep's jobs may share one."""
    trainer = config["trainer"]
    torch.set_num_threads(config["launcher"]["threads_per_rank"])
    torch.autograd.set_detect_anomaly(trainer["detect_anomaly"])
    set_deterministic(trainer["deterministic"])
