"""trainer.verify_every: finds silent data corruption by computing gradients twice, and by digests between updates.

docs/checks.md says what each of them finds. Sources: Dixit et al. 2021, Silent Data Corruptions at Scale
(https://arxiv.org/abs/2102.11245); Hochschild et al. 2021, Cores that don't count
(https://doi.org/10.1145/3458336.3465297).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import combinations, pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from manyheads.runner.checkpoint.rank.dtypes import as_real
from manyheads.runner.data.rank.batches import Batch
from manyheads.runner.data.rank.rng import get_state, set_state
from manyheads.runner.loop.guards.corruption import (
    AtRest,
    Corrupted,
    Digests,
    Mismatch,
    are_same,
    culprits,
    described,
    device_in_words,
    digest,
)
from manyheads.runner.loop.guards.guard import Compute, Guard
from manyheads.runner.loop.update import Update
from manyheads.runner.parallel.rank.parallel import Parallel
from manyheads.runner.parallel.rank.passes import ForwardResult
from manyheads.runner.run.files import make_folder, whole_file
from manyheads.runner.run.run_folder import RunFolder

MARGIN = 10.0  # gradients may differ by this many times what passes with nondeterministic kernels differed by


class Pass(NamedTuple):
    """The result of one computation of an update's gradients on this rank.

    ``gradients``: after the exchange, by parameter; ``own``: digests of its gradients before that, and of its losses.
    """

    results: list[ForwardResult]
    gradients: dict[str, Tensor]
    own: dict[str, list[int]]


class Verification(Guard):
    """Checks every ``every``-th update. ``retries``: decide by another computation if two differ, and continue.

    ``say``: shows a message. The session's first update is computed three times, which tells whether kernels here are
    deterministic; if not, gradients may differ by MARGIN times as much as they did then.
    """

    _update: Update  # whose gradients are computed

    def __init__(self, parallel: Parallel, *, every: int, retries: bool, folder: RunFolder, say: Callable[[str], None]):
        self._parallel, self._every, self._retries = parallel, every, retries
        self._folder, self._say, self._device = folder, say, device_in_words(parallel.device)
        self._tolerance: float | None = None  # of the norm of a difference, relative; None before it is known
        self._rest, self._is_due = AtRest(), False

    def compute(self, update: Update, step: int, batches: list[Batch], compute: Compute) -> list[ForwardResult]:
        self._update, self._is_due = update, self.is_due(step)
        return self._compared_passes(step, batches, compute) if self._is_due else compute(batches)

    def unscaled(self) -> None:
        self._rest.check()
        self._rest.forget()

    def stepped(self, step: int) -> None:
        if self._is_due:
            self._rest.note(self._update, step)

    def before_save(self) -> None:
        self._rest.check()

    def weights_loaded(self) -> None:
        self._rest.forget()

    def is_due(self, step: int) -> bool:
        """Whether to check update ``step``, counted from 1."""
        return self._tolerance is None or (step - 1) % self._every == 0

    def _compared_passes(self, step: int, batches: list[Batch], compute: Compute) -> list[ForwardResult]:
        """Compute an update's gradients more than once, and leave what a single computation leaves.

        Raises Corrupted if the results differ.
        """
        state, buffers = get_state(), [buffer.clone() for buffer in self._update.model.buffers()]

        def again() -> Pass:
            self._update.precision.zero_grad(self._update.optimizer)
            self._update.restore_buffers(buffers)
            set_state(state)
            return self._pass(batches, compute)

        passes = [self._pass(batches, compute), again()]
        if self._tolerance is None:
            passes.append(again())
            self._tolerance = self._calibrated(passes)
        for one, other in pairwise(passes):
            if wrong := culprits(everyone := self._compared(one, other)):
                break
        else:
            return passes[-1].results
        text = described(step, wrong, [mismatch.device for mismatch in everyone])
        if self._retries:
            last = again()
            if not all(culprits(self._compared(candidate, last)) for candidate in passes):
                self._say(f"warning: {text} It was computed once more, with the result of one of the two.")
                return last.results
        where = self._stored(step, one, other)
        raise Corrupted(
            f"{text}{where} The update was not made. Resume the run, and replace the device if it happens there again.",
            is_here=self._parallel.rank in wrong,
        )

    def _pass(self, batches: list[Batch], compute: Compute) -> Pass:
        with self._own_digests() as by_name:
            results = compute(batches)
        by_name["loss"] = [digest(passed.loss) for passed in results]
        digests = {name: torch.stack(values).tolist() for name, values in by_name.items() if values}
        return Pass(results, {name: gradient.clone() for name, gradient in self._gradients().items()}, digests)

    @contextmanager
    def _own_digests(self) -> Iterator[dict[str, list[Tensor]]]:
        """A context in which each gradient is digested before it is exchanged, if ranks have complete gradients."""
        digests: dict[str, list[Tensor]] = {}
        with ExitStack() as hooks:
            if self._parallel.world_size > 1 and not self._parallel.shares_model:
                for name, parameter in self._parallel.unwrap(self._update.model).named_parameters():
                    if parameter.requires_grad:
                        note = partial(_note, digests.setdefault(name, []))
                        hooks.enter_context(parameter.register_post_accumulate_grad_hook(note))
            yield digests

    def _gradients(self) -> dict[str, Tensor]:
        """This rank's part of each gradient."""
        update = self._update
        owned = dict(zip(update.names, update.parameters, strict=True))
        named = {**dict(self._parallel.unwrap(update.model).named_parameters()), **owned}
        return {n: self._parallel.layout.local(p.grad) for n, p in named.items() if p.grad is not None}

    def _compared(self, one: Pass, other: Pass) -> list[Mismatch]:
        """How two computations differ, by rank; all ranks call it. All differences count until a tolerance is known."""
        allowed = self._tolerance or 0.0
        names = [] if allowed else [name for name, digests in one.own.items() if digests != other.own.get(name)]
        exchanged = [
            name
            for name, gradient in one.gradients.items()
            if not are_same(gradient, other.gradients[name])
            and not _distance(gradient, other.gradients[name]) <= allowed
        ]
        replica = Digests(other.gradients).values() if self._parallel.is_replica else {}
        return self._parallel.gather(Mismatch(self._device, names, exchanged, replica))

    def _calibrated(self, passes: Sequence[Pass]) -> float:
        """The tolerance that these results of one computation call for: 0 if kernels are deterministic."""
        pairs = [*combinations(passes, 2)]
        are_equal = [not culprits(self._compared(*pair)) for pair in pairs]
        checked = "every update is" if self._every == 1 else f"one of {self._every} updates is"
        if any(are_equal):
            self._say(f"{checked} computed twice; kernels are deterministic here, so results must have the same bits")
            return 0.0
        distances = [_distance(one.gradients[n], two.gradients[n]) for one, two in pairs for n in one.gradients]
        most = torch.tensor([max(distances, default=0.0)], dtype=torch.float64, device=self._parallel.device)
        tolerance = MARGIN * self._parallel.reduce(most, "max").item()
        self._say(
            f"warning: {checked} computed twice, but kernels are not deterministic here, so gradients may differ by "
            f"{tolerance:.1g} of their norm, and smaller corruptions are not seen. Set trainer.deterministic=true."
        )
        return tolerance

    def _stored(self, step: int, one: Pass, other: Pass) -> str:
        """Write both of this rank's gradients that differ, and say where; empty if none does."""
        pairs = [(name, gradient, other.gradients[name]) for name, gradient in one.gradients.items()]
        differing = {name: (ours, theirs) for name, ours, theirs in pairs if not are_same(ours, theirs)}
        if not differing:
            return ""
        make_folder(self._folder.corruption)
        path = self._folder.corruption / f"update_{step}_rank_{self._parallel.rank}.pt"
        with whole_file(path) as file:
            torch.save(differing, file)
        return f" Both are in {self._folder.corruption.name}/{path.name}."


def _note(digests: list[Tensor], parameter: Tensor) -> None:
    """Add the digest of a parameter's gradient."""
    assert parameter.grad is not None
    digests.append(digest(parameter.grad))


def _distance(one: Tensor, other: Tensor) -> float:
    """The norm of the difference, relative to the norm of one of them."""
    one, other = (as_real(tensor).double() for tensor in (one, other))
    norm = torch.linalg.vector_norm(one)
    return float(torch.linalg.vector_norm(one - other) / norm) if norm else float(other.any())
