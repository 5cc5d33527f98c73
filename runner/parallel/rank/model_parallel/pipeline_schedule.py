"""Passes the micro-batches of an update through the stages of a pipeline, by torch's schedules.

Source: https://pytorch.org/docs/stable/distributed.pipelining.html.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, schedules

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.parallel.rank.model_parallel.flow import Flow, follow
from manyheads.runner.parallel.rank.model_parallel.pipelined_forward import PipelinedForward
from manyheads.runner.parallel.rank.model_parallel.stages import Stages, StageWindow
from manyheads.runner.parallel.rank.passes import ForwardBackward, ForwardResult
from manyheads.runner.parallel.rank.structure import (
    padded,
    rows_of,
    shapes_of,
    trimmed,
)

if TYPE_CHECKING:
    from manyheads.runner.data.rank.batches import Batch

SCHEDULES: dict[str, Any] = {
    "gpipe": schedules.ScheduleGPipe,
    "1f1b": schedules.Schedule1F1B,
    "interleaved": schedules.ScheduleInterleaved1F1B,
    "looped_bfs": schedules.ScheduleLoopedBFS,
}


class Pipeline:
    """Sends this rank's micro-batches through its stages.

    ``twin``: the model on meta; ``group``: the ranks of the pipeline; ``schedule``: one of SCHEDULES, or "auto": 1f1b
    if there are at least as many micro-batches as stages, else gpipe; ``carried``: given a module's name and a flow,
    returns a tensor like the one sent to a stage that begins there.
    """

    def __init__(
        self,
        stages: Stages,
        twin: nn.Module,
        *,
        schedule: str,
        group: Any,
        device: torch.device,
        carried: Callable[[str | None, Flow], Tensor],
    ):
        self._stages, self._twin, self._schedule = stages, twin, schedule
        self._group, self._device, self._like = group, device, carried
        self._made: dict[Any, tuple[Any, Flow]] = {}
        self._flows: dict[Any, Flow] = {}
        self._feed: list[Any] = []
        self._autocast: Callable[[], AbstractContextManager] = nullcontext
        self.evaluate = PipelinedForward(stages, group=group, device=device, carried=carried, flow_of=self._flow_of)

    def compute_gradients(self, batches: "list[Batch]", step: ForwardBackward) -> list[ForwardResult]:
        """Run all forward and backward passes; return their results on the last stage's rank, [] elsewhere.

        Raises ConfigurationError if the micro-batches differ in their samples' shapes.
        """
        rows = max(rows_of(batch.inputs) for batch in batches)
        self._feed = [padded(batch.inputs, rows) for batch in batches]
        if len({shapes_of(inputs) for inputs in self._feed}) > 1:
            shapes = sorted({str(shapes_of(inputs)) for inputs in self._feed})
            raise ConfigurationError.at(
                "parallel",
                "pipeline",
                ": the micro-batches of an update differ in their samples' shapes: "
                f"{' and '.join(shapes)}. Let the data set's collate_fn pad them to the same shape, or set "
                "parallel=fsdp.",
            )
        schedule, flow = self._scheduled(len(batches), self._feed[0])
        passes: list[ForwardResult | None] = [None] * len(batches)

        def loss(outputs: Any, number: Tensor) -> Tensor:
            index = int(number)
            batch = batches[index]
            with step.autocast():
                objective, passes[index] = step.objective(trimmed(outputs, rows, rows_of(batch.inputs)), batch)
            return step.scaled(objective)

        self._autocast, self._flow, self._blank = step.autocast, flow, flow.given
        schedule._loss_fn = loss
        numbers = torch.arange(len(batches))  # on the CPU: reading one from a GPU would wait for all that it has to do
        given = (numbers,) if self._is_first else ()
        target = {"target": numbers} if self._is_last else {}
        if not self._is_last:
            step.scaled(torch.zeros((), device=self._device))  # a gradient scaler is initialized by its first loss
        try:
            schedule.step(*given, **target, return_outputs=False)
        except RuntimeError as error:
            if isinstance(error.__cause__, Exception):  # torch wraps the user's own error
                raise error.__cause__ from None
            raise
        return [passed for passed in passes if passed is not None]

    def _scheduled(self, count: int, inputs: Any) -> tuple[Any, Flow]:
        """The schedule for ``count`` micro-batches of these shapes, and their flow."""
        key = count, shapes_of(inputs)
        if key not in self._made:
            flow, total = self._flow_of(inputs), len(self._stages.windows)
            name = self._schedule
            if name == "auto":
                name = "1f1b" if count >= total else "gpipe"
            stages = [self._stage(number, flow) for number in self._stages.mine]
            kind = SCHEDULES[name]
            options: dict[str, Any] = {"n_microbatches": count, "loss_fn": _no_loss, "scale_grads": False}
            single = issubclass(kind, schedules.PipelineScheduleSingle)
            self._made[key] = kind(stages[0] if single else stages, **options), flow
        return self._made[key]

    def _stage(self, number: int, flow: Flow) -> PipelineStage:
        windows = self._stages.windows
        given = torch.zeros(1, dtype=torch.int64) if number == 0 else self._carried(windows[number].begin, flow)
        output = flow.output if number == len(windows) - 1 else self._carried(windows[number].end, flow)
        module = _StageModule(self, windows[number])
        options = {"input_args": (given,), "output_args": output, "group": self._group}
        return PipelineStage(module, number, len(windows), self._device, **options)

    def _carried(self, name: str | None, flow: Flow) -> Tensor:
        """A tensor like the input of a module at which a stage begins."""
        like = self._like(name, flow)
        return torch.empty(like.shape, dtype=like.dtype, device=self._device, requires_grad=True)

    def call_stage(self, window: StageWindow, given: Tensor) -> Any:
        """A stage's output for a micro-batch; ``given``: its number for the first stage, else the received tensor."""
        with self._autocast():
            if window.number == 0:
                output = self._stages.run(window, self._feed[int(given)], self._flow, None)
            else:
                output = self._stages.run(window, self._blank, self._flow, given)
        if window.end is None:
            return output
        # Autocast may have lowered its precision; ranks exchange one dtype, which represents it exactly.
        return output.to(self._like(window.end, self._flow).dtype).contiguous()

    @property
    def _is_first(self) -> bool:
        return 0 in self._stages.mine

    @property
    def _is_last(self) -> bool:
        return len(self._stages.windows) - 1 in self._stages.mine

    def _flow_of(self, inputs: Any) -> Flow:
        key = shapes_of(inputs)
        if key not in self._flows:
            self._flows[key] = follow(self._twin, inputs)
        return self._flows[key]


class _StageModule(nn.Module):
    """A stage as the module that torch's schedules call."""

    def __init__(self, pipeline: Pipeline, window: StageWindow):
        super().__init__()
        self._call = pipeline.call_stage
        self._window = window

    def forward(self, given: Tensor) -> Any:
        return self._call(self._window, given)


def _no_loss(outputs: Any, number: Tensor) -> Tensor:
    raise AssertionError("the loss is set for each update")
