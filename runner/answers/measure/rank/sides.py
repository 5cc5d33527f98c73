"""The two sides of the comparison: the baseline writes what its steps computed, the others compare theirs with it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from manyheads.runner.answers.measure.rank.constructed import Constructed
from manyheads.runner.answers.measure.rank.difference import differences, factor, unlike, whole_and_parts
from manyheads.runner.answers.measure.rank.trace import Trace, culprit, unsynchronized
from manyheads.runner.answers.measure.steps_task import (
    Culprit,
    LargestDifference,
    ParityFindings,
    ParityTask,
    StepFiles,
)
from manyheads.runner.checkpoint.rank.load import load, weights_sha256
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.loop.session import Session
from manyheads.runner.run.files import make_folder
from manyheads.runner.run.run_folder import RunFolder

Digests = dict[str, dict[str, str]]
KINDS = ("loss", "gradient", "weight", "buffer")


@dataclass(frozen=True)
class StepsTaken:
    """The values of one step, on the CPU: the loss over the global batch; the rest by the user's own names."""

    loss: float
    gradients: dict[str, Tensor | None]
    weights: dict[str, Tensor]
    buffers: dict[str, Tensor]

    def by_kind(self) -> dict[str, dict[str, Tensor | None]]:
        """The values by kind (loss, gradient, weight, buffer), then by name."""
        return {
            "loss": {"loss": torch.tensor(self.loss, dtype=torch.float64)},
            "gradient": {**self.gradients},
            "weight": {**self.weights},
            "buffer": {**self.buffers},
        }


class Baseline:
    """The baseline's side: writes the values of each step to files."""

    def __init__(self, session: Session, constructed: Constructed):
        self._session, self._files = session, StepFiles.of(session.folder)
        self._constructed = constructed
        self._gradients: dict[str, bool] = {}  # by name, whether any step has had one
        self._finite = True
        make_folder(self._files.folder)

    def start(self, digests: Digests) -> None:
        """Write the initial state, and ``digests`` of the initial weights, for the other sides to read."""
        self._changes = self._constructed.changes(self._session.parallel.unwrap(self._session.update.model))
        self._cut = whole_and_parts(self._session)
        self._save({"state": self._session.state.learned(), "digests": digests}, self._files.start)

    def before(self, step: int) -> None:
        """The baseline's next step begins where its last one ended."""

    def after(self, step: int, taken: StepsTaken) -> None:
        """Write the values and the state after a step. ``step``: counted from 0."""
        state = self._session.state.learned()
        state["model"].update(taken.weights)  # the same tensors, which torch then writes once
        kinds = taken.by_kind()
        self._save({"state": state, "loss": taken.loss, "kinds": kinds}, self._files.step(step))
        self._finite &= finite(kinds["loss"]) and finite(kinds["weight"])
        for name, gradient in taken.gradients.items():
            self._gradients[name] = self._gradients.get(name, False) or gradient is not None

    def traced(self, trace: Trace, samples: list[list[int]]) -> None:
        """Write the outputs of all modules in the first step. ``samples``: indices in each micro-batch."""
        self._save(trace.samples(samples), self._files.trace)

    def _save(self, content: Any, path: Path) -> None:
        """Save on the one rank to which strategies gather shared tensors."""
        if self._session.parallel.records:
            torch.save(content, path)

    def findings(self) -> ParityFindings:
        """The findings about the baseline alone."""
        return {
            "unused": [name for name, used in self._gradients.items() if not used],
            "finite": self._finite,
            "cut": self._cut,
            "differences": self._changes,
        }


class ComparedSide:
    """Another strategy's side: starts each step from the baseline's state, and compares the results."""

    def __init__(self, session: Session, task: ParityTask):
        assert task.baseline is not None
        self._session, self._task, self._parallel = session, task, session.parallel
        self._files = StepFiles.of(RunFolder(task.baseline))
        self._largest: dict[tuple[str, str], LargestDifference] = {}
        self._initial: dict[str, list[str]] = {}  # by kind, the tensors that this rank built differently
        self._culprit: Culprit | None = None
        self._outputs_agree: bool | None = None
        self._loss: list[float] | None = None  # the baseline's and this one's, where they first differ
        self._factor: float | None = None
        self._apart: list[str] = []  # weights that differed between ranks after a step

    def start(self, digests: Digests) -> None:
        """Note which initial tensors differ from the baseline's. ``digests``: of this rank's."""
        self._initial = unlike(load(self._files.start)["digests"], digests)

    def before(self, step: int) -> None:
        """Load the state with which the baseline began this step, counted from 0. Raises RuntimeError."""
        path = self._files.step(step - 1) if step else self._files.start
        try:
            self._session.state.load({**load(path)["state"], "source": path})
        except ConfigurationError:
            names = ", ".join(self._initial["parameter"][:4])
            raise RuntimeError(f"the model is not built like the baseline's: {names} and others differ") from None

    def after(self, step: int, taken: StepsTaken) -> None:
        """Compare the values of a step, counted from 0, with the baseline's."""
        kept = load(self._files.step(step))
        theirs, ours = kept["kinds"], taken.by_kind()
        if self._parallel.shares_model:  # this rank compares only the tensors that it has
            theirs = {kind: {name: its for name, its in theirs[kind].items() if name in ours[kind]} for kind in KINDS}
        if self._session.update.precision.skips_overflow and not finite(theirs["gradient"]):
            theirs["gradient"], ours["gradient"] = {}, {}  # an overflow, whose update is skipped
        relative = {kind: differences(theirs[kind], ours[kind]) for kind in KINDS}
        for rank in self._parallel.gather(relative):
            for kind, tensors in rank.items():
                for name, size in tensors.items():
                    self._note(kind, name, size, step)
        if self._loss is None and relative["loss"]["loss"] > self._task.tolerance:
            self._loss = [kept["loss"], taken.loss]
        if step == 0:
            self._factor = factor(theirs["gradient"], ours["gradient"], self._task.tolerance)
        ranks = self._parallel.gather({name: weights_sha256({name: weight}) for name, weight in taken.weights.items()})
        apart = {name for rank in ranks for name, its in rank.items() if its != ranks[0].get(name)}
        self._apart += sorted(apart - {*self._apart})

    def _note(self, kind: str, name: str, size: float, step: int) -> None:
        entry = self._largest.setdefault((kind, name), {"kind": kind, "name": name, "largest": 0.0, "step": step})
        if size > entry["largest"]:
            entry |= {"largest": size, "step": step}
        if size > self._task.tolerance:
            entry.setdefault("first", step)

    def traced(self, trace: Trace, samples: list[list[int]]) -> None:
        """Find the first module whose output differs for the same input. ``samples``: indices in each micro-batch."""
        first, agree = culprit(load(self._files.trace), trace.samples(samples), self._task.tolerance)
        self._outputs_agree = agree
        if first is not None:
            self._culprit = {**self._described(first[1], trace), "number": first[0]}

    def _described(self, name: str, trace: Trace) -> Culprit:
        """The module and why its output may differ: statistics, random, buffer, or batch if the cause is unknown."""
        model = self._parallel.unwrap(self._session.update.model)
        module, buffers, alike = model.get_submodule(name), [], 0
        below = [drew for drew in trace.drew if drew == name or not name or drew.startswith(f"{name}.")]
        buffer_names = {f"{name}.{buffer}".lstrip(".") for buffer, _ in module.named_buffers(recurse=False)}
        if unsynchronized(module):
            reason, alike = "statistics", sum(map(unsynchronized, model.modules()))
        elif below:
            reason, name = "random", below[0]
            module = model.get_submodule(name)
            alike = sum(type(model.get_submodule(drew)) is type(module) for drew in trace.drew)
        elif buffers := sorted(buffer_names & {*self._initial["buffer"]}):
            reason = "buffer"
        else:
            reason = "batch"
        return {"module": name, "kind": type(module).__name__, "reason": reason, "buffers": buffers, "alike": alike}

    def findings(self) -> ParityFindings:
        """The findings, the same on every rank."""
        initial = self._parallel.gather(self._initial)
        ranks: list[Culprit | None] = self._parallel.gather(self._culprit)
        culprits: list[Culprit] = [{**culprit, "rank": n} for n, culprit in enumerate(ranks) if culprit]
        agree = self._parallel.gather(self._outputs_agree)
        return {
            "differences": list(self._largest.values()),
            "initial": [
                {"rank": n, "parameter": names["parameter"], "buffer": names["buffer"]}
                for n, names in enumerate(initial)
                if any(names.values())
            ],
            "apart": self._apart,
            "culprit": min(culprits, key=lambda culprit: culprit["number"], default=None),
            "outputs_agree": next((agreement for agreement in (False, True) if agreement in agree), None),
            "loss": self._loss,
            "factor": self._factor,
        }


def finite(tensors: dict[str, Tensor | None]) -> bool:
    """Whether all numbers are finite; None stands for a gradient that does not exist."""
    return all(tensor is None or bool(tensor.isfinite().all()) for tensor in tensors.values())
