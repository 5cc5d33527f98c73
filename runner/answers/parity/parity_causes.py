"""Sentences that explain why a strategy computes a different result, as far as the findings tell."""

import math
from collections.abc import Iterator, Sequence
from itertools import chain

from manyheads.runner.answers.measure.steps_task import Culprit, ParityFindings
from manyheads.runner.answers.parity.parity_plan import FAILED, ParityOutcome, near
from manyheads.runner.wording import listed


def causes(outcome: ParityOutcome, baseline: ParityFindings) -> list[str]:
    """Sentences about an outcome that differs. ``baseline``: what its own run found."""
    if not outcome.differs:
        return []
    if outcome.state == FAILED:
        return list(_of_failure(outcome, baseline))
    if outcome.findings is baseline:
        return [_of_conversion(outcome)]
    if not baseline["finite"]:
        return ["The baseline's own loss or weights are not finite, so nothing can be compared. Lower optimizer.lr."]
    first = [*_of_first_step(outcome)] or [*_of_cut(outcome, baseline)]
    sentences = [*_of_initial(outcome), *first, *_of_unused(outcome, baseline)]
    if outcome.findings["apart"] and not sentences:
        sentences.append(
            f"After a step the ranks no longer have the same weights: {listed(outcome.findings['apart'])}."
        )
    return sentences or [_unknown(outcome)]


def unused_note(baseline: ParityFindings) -> str:
    """A note on parameters that no step used, if nothing differs."""
    names = baseline["unused"]
    if not names:
        return ""
    return f"{listed(names)} {_get(names)} no gradient: unused. ddp fails on that without find_unused_parameters=true."


def _of_failure(outcome: ParityOutcome, baseline: ParityFindings) -> Iterator[str]:
    names = baseline["unused"]
    unused = f"{listed(names)} {_get(names)} no gradient" if names else ""
    if outcome.run and (text := outcome.run.parallel.cause_of(outcome.error, unused=unused)):
        yield text


def _of_conversion(outcome: ParityOutcome) -> str:
    names = listed([entry["name"] for entry in outcome.beyond()])
    return (
        f"{names}: not what the model's constructor returned, on every strategy: converting the model to the run's "
        "precision changed more than rounding does. Please report this with the model."
    )


def _of_initial(outcome: ParityOutcome) -> Iterator[str]:
    """Every rank must build the same model, even if the strategy then broadcasts rank 0's."""
    initial = outcome.findings["initial"]
    parameters = {str(rank["rank"]): rank["parameter"] for rank in initial if rank["parameter"]}
    buffers = {str(rank["rank"]): rank["buffer"] for rank in initial if rank["buffer"]}
    hides = f" {outcome.strategy} broadcasts rank 0's values to all ranks, which hides it."
    hidden = "" if outcome.beyond() else hides
    for names_of_ranks, what in ((parameters, "initial weights"), (buffers, "buffers")):
        if names := [*dict.fromkeys(chain(*names_of_ranks.values()))]:
            where = f"rank{'s' if len(names_of_ranks) > 1 else ''} {', '.join(names_of_ranks)}"
            yield (
                f"{listed(names)}: the {what} that the model is built with on {where} differ from the baseline's, "
                f"so they depend on the rank or on chance.{hidden} Draw them from torch's generator, or make them "
                "constant."
            )


def _of_first_step(outcome: ParityOutcome) -> Iterator[str]:
    """Why the first step differs; settings that change gradients are named if only those differ."""
    findings = outcome.findings
    if culprit := findings["culprit"]:
        yield _of_module(culprit)
    elif findings["outputs_agree"] and findings["loss"]:
        yield _of_loss(outcome, *findings["loss"])
    elif findings["outputs_agree"] and outcome.beyond("gradient"):
        ratio = findings["factor"]
        if settings := [*_of_settings(outcome)]:
            yield from settings
        elif ratio is None or near(ratio, 1):
            yield "Outputs and loss agree, the gradients don't: the exchange of gradients, or a backward pass, differs."
        else:
            yield f"Outputs and loss agree, but all gradients are {_times(ratio)} the baseline's."


def _of_cut(outcome: ParityOutcome, baseline: ParityFindings) -> Iterator[str]:
    """Why outputs cannot be compared, for example if samples are padded to the longest of their share."""
    uncut, parts = baseline.get("cut") or (0.0, 0.0)
    if outcome.findings["outputs_agree"] is not True and not math.isclose(uncut, parts, rel_tol=outcome.tolerance):
        ratio = parts / uncut if uncut else float("nan")
        yield (
            f"Even on one rank, splitting the batch changes the loss to {_times(ratio)} that of the whole batch: "
            f"{_of_parts(outcome)}"
        )


def _of_module(culprit: Culprit) -> str:
    name = f"{culprit['module'] or 'The model itself'} ({culprit['kind']})"
    several = f"{name}, like {culprit['alike'] - 1} more," if culprit["alike"] > 1 else name
    if culprit["reason"] == "statistics":
        return (
            f"{several} computes its statistics over each rank's share of the batch, not over all of it. Set "
            "parallel.sync_batchnorm=true (ddp, horovod; GPUs only), or choose a model without BatchNorm."
        )
    if culprit["reason"] == "random":
        has_probability = "Dropout" in culprit["kind"] or culprit["kind"] == "StochasticDepth"
        remedy = "Set its probability to 0" if has_probability else "Leave it out"
        return f"{several} draws random numbers, different ones on each rank. {remedy} for this check."
    if culprit["reason"] == "buffer":
        buffers = listed(culprit["buffers"])
        return f"{name} is the first module with a different output for the same input, by its buffer {buffers}."
    return (
        f"{name} is the first module with a different output for the same input: it depends on the other samples in "
        "its batch, or on the rank."
    )


def _of_loss(outcome: ParityOutcome, baseline: float, loss: float) -> str:
    ratio, ranks = loss / baseline if baseline else float("nan"), outcome.ranks or 1
    text = f"All outputs agree, but the loss is {_times(ratio)} the baseline's:"
    if ranks > 1 and near(ratio, 1 / ranks):
        return (
            f"{text} it does not average over its batch: it sums, or divides by a fixed number. Set "
            "task.reduction=sum, or divide by the batch's size."
        )
    return f"{text} {_of_parts(outcome)}"


def _of_parts(outcome: ParityOutcome) -> str:
    assert outcome.run is not None
    task = outcome.run.task
    name = task.target.rpartition(".")[2] if task.name == "custom" else task.name
    return (
        f"what the task {name} computes depends on how a batch is split. It may weight samples, skip some, or "
        "average over tokens: let the task's count(batch) return what it averages over, or divide by the number of "
        "samples. A loss that compares samples with one another, or divides sums over the batch, as contrastive and "
        "dice losses do, always depends on that."
    )


def _of_settings(outcome: ParityOutcome) -> Iterator[str]:
    assert outcome.run is not None
    parallel = outcome.run.parallel
    for key, plain in parallel.changes_gradients.items():
        if (value := parallel.section.get(key, plain)) != plain:
            yield (
                f"Outputs and loss agree, the gradients don't: parallel.{key}={value} is meant to change "
                f"them. parallel.{key}={plain} does not."
            )


def _of_unused(outcome: ParityOutcome, baseline: ParityFindings) -> Iterator[str]:
    names = [entry["name"] for entry in outcome.beyond("weight") if entry["name"] in baseline["unused"]]
    if names:
        yield (
            f"{listed(names)} {_get(names)} no gradient, so the baseline leaves {'them' if names[1:] else 'it'} alone; "
            f"here the gradient is 0, and weight decay or momentum still act. Remove what is unused."
        )


def _unknown(outcome: ParityOutcome) -> str:
    if outcome.run and outcome.run.trainer.compile != "none":
        return "A compiled model can't be inspected. Set trainer.compile=none to find the cause."
    step = min((entry["first"] for entry in outcome.beyond()), default=0)
    if step:
        return (
            f"The first step agrees, step {step + 1} is the first that does not: some state is carried over "
            "between steps."
        )
    if outcome.beyond("gradient", "loss"):
        return "No single module could be named: look for what depends on the rank, or on the other samples of a batch."
    return (
        "Loss and gradients agree: what differs is how the optimizer applies them, or a buffer that does not "
        "affect results."
    )


def _times(ratio: float) -> str:
    if 0 < ratio < 1 and near(1 / ratio, round(1 / ratio)):
        return f"1/{round(1 / ratio)} of"
    return f"{ratio:.4g} times"


def _get(names: Sequence[str]) -> str:
    return "gets" if len(names) == 1 else "get"
