"""A rank's update, run with torch's fake tensors in its fake process group.

The strategy, the precision, the optimizer and the update are those of a real run; their memory and communication are
counted.
"""

import gc
import logging
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from manyheads.runner.answers.measure.findings import RankHolds
from manyheads.runner.answers.measure.rank.counted import Allocated, CountedTraffic, SavedTensors
from manyheads.runner.answers.measure.rank.fake_ddp import Replicated
from manyheads.runner.answers.measure.rank.fake_models import (
    UnknownValues,
    hollow_parameters,
    make_fake,
    plain_conversion,
    replaced,
    where_it_stops,
)
from manyheads.runner.answers.measure.rank.gpu_kernels import gpu_kernels
from manyheads.runner.checkpoint.rank.dtypes import converted
from manyheads.runner.data.rank.batches import Batch
from manyheads.runner.data.rank.build_data import build_data
from manyheads.runner.data.rank.rng import seed_everything
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.loop.assembly import assemble
from manyheads.runner.loop.build import set_process
from manyheads.runner.loop.guards.guard import observed_gradients
from manyheads.runner.loop.observers.held_memory import gradient_bytes
from manyheads.runner.loop.prepare import Prepared, build_task_and_loaders
from manyheads.runner.loop.update import Update
from manyheads.runner.model.rank.build_model import Built, bare_model
from manyheads.runner.option.locate import call, combined
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.parallel.rank.parallel import Parallel
from manyheads.runner.parallel.rank.structure import held_bytes, map_tensors, state_tensors

# It logs each error of a model, which is reported in a sentence anyway.
FAKE = logging.getLogger("torch._subclasses.fake_tensor")
UPDATES = 2  # the first one creates what later ones use, such as the optimizer's state


@dataclass(frozen=True)
class Rehearsed:
    """The result of a rehearsal. ``unlike``: what ``Parallel.unlike`` returned; ``layout``: of all ranks, in words.

    ``samples``: number of samples in a micro-batch.
    """

    holds: RankHolds
    unlike: dict[int, bool]
    layout: str
    samples: int


def rehearse(run: RunConfig, rank: int, *, follows: bool = True, on_gpus: bool = False) -> Rehearsed:
    """Count the memory and communication of a rank. Raises ConfigurationError as the run would.

    ``run``: the run's config; ``follows``: run updates; otherwise only the memory held between updates is counted;
    ``on_gpus``: with tensors as large as there.
    """
    run = _without_files(run)
    set_process(run.launcher.threads_per_rank, run.trainer.detect_anomaly, run.trainer.deterministic)
    seed_everything(run.seed)
    parallel = _alone(run, rank)
    try:
        with gpu_kernels() if on_gpus else nullcontext():
            rehearsed = _rehearsed(run, parallel, follows=follows)
    finally:
        parallel.leave()
        gc.collect()  # fake tensors refer to each other
    if not rehearsed.holds.stops:
        return rehearsed
    # With a new model: an update has stopped halfway in the other.
    held = rehearse(run, rank, follows=False, on_gpus=on_gpus)
    return replace(held, holds=replace(held.holds, stops=rehearsed.holds.stops))


def _alone(run: RunConfig, rank: int) -> Parallel:
    """The strategy of this rank, without any other ranks."""
    option = run.parallel.stand_in()
    if "timeout" in option.section:
        option = type(option)({**option.section, "backend": "fake"})

    class LoneRank(option.kind):  # type: ignore[name-defined]
        """The strategy, where what this rank has stands for what all have."""

        def gather(self, value: Any) -> list[Any]:
            return [value] * self.world_size

    position = {"rank": rank, "local_rank": rank, "world_size": run.launcher.ranks, "device_type": "cpu"}
    parallel: Parallel = call(option.key, option.target, LoneRank, **combined(option.key, option.arguments(), position))
    parallel.join()
    return parallel


def _without_files(run: RunConfig) -> RunConfig:
    """The config without weight files, and with settings that fake tensors support, of the same size."""
    scales = run.precision.section.get("dtype") == "float16"  # by unknown values; bfloat16 has the same sizes
    return run.changed(
        precision={"dtype": "bfloat16"} if scales else {},
        model={"pretrained": None},
        trainer={"on_nan": "error", "on_spike": None, "verify_every": 0, "compile": "none", "compile_units": []},
        data={"num_workers": 0},
    )


def _rehearsed(run: RunConfig, parallel: Parallel, *, follows: bool) -> Rehearsed:
    data = build_data(run.data)
    precision = run.precision.instantiate(parallel)
    try:
        with hollow_parameters():
            model = bare_model(run.model, data, convert=partial(converted, dtype=precision.dtype))
        if not any(parameter.requires_grad for parameter in model.parameters()):
            raise ConfigurationError(f"{type(model).__name__} has no trainable parameters, so there is no update.")
        task, loaders = build_task_and_loaders(run, parallel, data, precision.dtype)
        batch = loaders.train.example()
        mode, allocated, traffic = FakeTensorMode(allow_non_fake_inputs=True), Allocated(), CountedTraffic()
        ddp = replaced(nn.parallel, "DistributedDataParallel", Replicated)
        with mode, allocated, allocated.resizes(), plain_conversion(), ddp, replaced(FAKE, "disabled", True):
            make_fake(model, mode)
            task = task.to(parallel.device)
            prepared = Prepared(data, precision, Built(model), task, loaders, parameters=0)
            update, _ = assemble(run, parallel, prepared, example=lambda: batch)  # no file is read from here on
            batches = [_fake_batch(batch, mode) for _ in range(run.trainer.grad_accumulation)]
            rehearsal = Rehearsal(update, batches, allocated, traffic)
            with traffic, UnknownValues(model):
                holds = rehearsal.run(parallel.rank, parallel.unwrap(update.model), follows=follows)
            return Rehearsed(holds, parallel.unlike(), parallel.summary.replace(" over fake", ""), batch.count)
    finally:
        precision.close()


def _fake_batch(batch: Batch, mode: FakeTensorMode) -> Batch:
    content, inputs = (map_tensors(mode.from_tensor, value) for value in (batch.content, batch.inputs))
    return replace(batch, content=content, inputs=inputs)


class Rehearsal:
    """Runs updates and counts their memory and communication."""

    def __init__(self, update: Update, batches: list[Batch], allocated: Allocated, traffic: CountedTraffic):
        self.update, self.batches, self.allocated, self.traffic = update, batches, allocated, traffic
        self.saved = SavedTensors()
        self.gradients = 0
        self.then = 0

    def run(self, rank: int, model: nn.Module, *, follows: bool) -> RankHolds:
        """Count what is held and sent in an update after the first."""
        stops = ""
        try:
            for number in range(UPDATES if follows else 0):
                self._update(number, model)
        except ConfigurationError:
            raise
        except Exception as error:
            if not (stops := where_it_stops(error, model)):
                raise
        if not follows:
            self._step_alone()
        parallel, precision, optimizer = self.update.parallel, self.update.precision, self.update.optimizer
        tensors = [parallel.layout.local(parameter) for parameter in model.parameters()]
        storages = {tensor.untyped_storage()._cdata for tensor in tensors}
        masters = [p for p in precision.parameters(optimizer) if p.untyped_storage()._cdata not in storages]
        holds = RankHolds(
            rank,
            parameters=held_bytes(tensors),
            gradients=self.gradients,
            optimizer=held_bytes(state_tensors(parallel.layout.optimizer_state(optimizer))),
            masters=held_bytes(masters),
            buffers=held_bytes(model.buffers()),
            stops=stops,
        )
        if stops or not follows:
            return holds
        return replace(
            holds,
            activations=self.saved.most,
            activations_then=self.then,
            most=self.allocated.most,
            traffic=dict(self.traffic.by_kind),
        )

    def _update(self, number: int, model: nn.Module) -> None:
        self.saved, self.traffic.by_kind = SavedTensors(), {}
        self.allocated.most, self.allocated.at_most = 0, self._note
        model.train()
        with self.saved.counting(model), observed_gradients(self.update.guards, self._measure):
            self.update(self.batches, number=number, wants_norm=False)

    def _note(self) -> None:
        self.then = self.saved.now

    def _measure(self) -> None:
        self.gradients = gradient_bytes(self.update)

    def _step_alone(self) -> None:
        """Run the optimizer's step with gradients that were not computed."""
        update = self.update
        for parameter in update.parameters:
            parameter.grad = torch.zeros_like(parameter)
        self._measure()
        with update.parallel.stepping(update.optimizer):
            update.precision.step(update.optimizer)
