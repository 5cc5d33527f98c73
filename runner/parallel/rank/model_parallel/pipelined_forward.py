"""Passes a batch through the stages of a pipeline without gradients, in time slots that all ranks share."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from manyheads.runner.parallel.rank.model_parallel.flow import Flow
from manyheads.runner.parallel.rank.model_parallel.stages import Stages, StageWindow
from manyheads.runner.parallel.rank.structure import chunks, joined, padded, rows_of, trimmed


class Turn(NamedTuple):
    """What a rank does in a time slot: run a stage for a piece, by its number."""

    window: StageWindow
    piece: int


class PipelinedForward:
    """The forward passes of this rank's stages.

    ``group``: the ranks of the pipeline; ``carried``: as for Pipeline; ``flow_of``: the flow for a batch's inputs.

    In slot s + p stage s runs for piece p. Between two slots a rank exchanges all of its messages in one batch: single
    sends and receives are serialized by NCCL, where each waits for its other end, so that two ranks which both send
    first would wait for ever.
    """

    def __init__(
        self,
        stages: Stages,
        *,
        group: Any,
        device: torch.device,
        carried: Callable[[str | None, Flow], Tensor],
        flow_of: Callable[[Any], Flow],
    ):
        self._stages, self._group, self._device = stages, group, device
        self._carried, self._flow_of = carried, flow_of
        self._ranks = dist.get_process_group_ranks(group)

    def __call__(self, inputs: Any) -> Any:
        """The outputs for a batch on the last stage's rank, None elsewhere.

        The batch is split into as many pieces as there are ranks, so that they work at the same time. A smaller batch
        is padded: pipelines that share sharded weights gather them once for each piece, and so need equally many.
        """
        count = rows_of(inputs)
        rows = max(count, len(self._ranks))
        pieces = chunks(padded(inputs, rows), len(self._ranks))
        flows = [self._flow_of(piece) for piece in pieces]
        outputs: list[Any] = []
        received: Tensor | None = None
        for slot in range(len(self._stages.windows) + len(pieces) - 1):
            sent = None
            if turn := self._turn(slot):
                window, flow = turn.window, flows[turn.piece]
                output = self._stages.run(
                    window, pieces[turn.piece] if window.begin is None else flow.given, flow, received
                )
                if window.end is None:
                    outputs.append(output)
                else:
                    sent = output.to(self._carried(window.end, flow).dtype).contiguous()
            coming = self._turn(slot + 1)
            received = self._exchange(sent, None if coming is None else self._empty(coming.window, flows[coming.piece]))
        return trimmed(joined(outputs), rows, count) if outputs else None

    def _turn(self, slot: int) -> Turn | None:
        """What this rank does in a slot; None for nothing. It has one turn at most, with as many pieces as ranks."""
        mine = self._stages.mine
        number, piece = divmod(slot - mine[0], len(self._ranks))
        return Turn(self._stages.windows[mine[number]], piece) if 0 <= number < len(mine) else None

    def _empty(self, window: StageWindow, flow: Flow) -> Tensor | None:
        """The memory for what a stage receives; None for the first one."""
        if window.begin is None:
            return None
        like = self._carried(window.begin, flow)
        return torch.empty(like.shape, dtype=like.dtype, device=self._device)

    def _exchange(self, sent: Tensor | None, received: Tensor | None) -> Tensor | None:
        """Send a tensor to the next rank and fill the other one by the previous rank's, which is returned."""
        place, count = self._stages.mine[0], len(self._ranks)
        messages = []
        if sent is not None:
            messages.append(dist.P2POp(dist.isend, sent, self._ranks[(place + 1) % count], self._group))
        if received is not None:
            messages.append(dist.P2POp(dist.irecv, received, self._ranks[(place - 1) % count], self._group))
        for work in dist.batch_isend_irecv(messages) if messages else ():
            work.wait()
        return received
