"""``manyheads scale``: measure a run on one device, and predict it on others."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from manyheads.runner.answers.measure.subject import Subject, subject_of
from manyheads.runner.answers.scale.answer import Scale
from manyheads.runner.answers.scale.measured_step import MeasuredStep, measured_step, wrapped_updates
from manyheads.runner.answers.scale.plan import Plan
from manyheads.runner.answers.scale.recorded import Recorded
from manyheads.runner.answers.scale.simulator import catalog
from manyheads.runner.answers.scale.simulator.catalog import Device
from manyheads.runner.answers.scale.simulator.interval import between_launches
from manyheads.runner.answers.scale.simulator.network import Link
from manyheads.runner.answers.scale.simulator.predict import Measured
from manyheads.runner.answers.scale.targets import OF_RUN, Target, counts, memory_of, target_of
from manyheads.runner.charts.picture_file import form_of, write_picture
from manyheads.runner.errors import ConfigurationError, not_allowed
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.provenance import predicted
from manyheads.runner.run.json_types import PredictedJson

CPU = "cpu"  # the device of runs that compute on CPUs


@dataclass(frozen=True)
class ScaleTerms:
    """The flags of the command, as typed.

    ``devices``: numbers of devices, separated by commas; ``device``: None for this machine's CPUs; ``batch``: what
    keeps its number of samples, OF_RUN or OF_DEVICE; ``price``: of a device for an hour.
    """

    devices: str
    network: str
    device: str | None = None
    batch: str = OF_RUN
    price: float | None = None


def scale(
    words: Sequence[str], terms: ScaleTerms, *, config_dir: str | None = None, picture: str | None = None
) -> Scale:
    """Predict a run on other numbers of devices. ``words``: as for ``explain``. ``picture``: a file to draw into.

    Raises ConfigurationError if the run cannot be predicted, and RunFailed if the measurement fails.
    """
    form = "" if picture is None else form_of(picture)
    devices, link = counts(terms.devices), catalog.network(terms.network)
    chosen = None if terms.device is None else catalog.device(terms.device)
    if terms.price is not None and not 0 < terms.price < math.inf:
        raise not_allowed("--price", terms.price, "a number above 0")
    subject = subject_of(words, config_dir=config_dir)
    if chosen is None and subject.run.on_gpus:
        raise ConfigurationError(
            f"{catalog.DEVICE} is not set: it says how GPUs are connected within a machine. Allowed: "
            f"{', '.join(catalog.names(catalog.DEVICES))}, or the path of a YAML file.",
            key=catalog.DEVICE,
        )
    targets = [target_of(subject.run, count, terms.batch) for count in devices]
    name = terms.device or CPU
    plan = _measured_plan(subject, targets, chosen or catalog.device(name), link, name=name, price=terms.price)
    answer = _answer(plan, network=terms.network, device=name)
    predicted.keep(
        PredictedJson(
            subject=predicted.subject(target.run, devices=target.devices, batch=target.batch),
            devices=target.devices,
            batch=target.batch,
            seconds=row.seconds,
            low=row.low,
            high=row.high,
            start=1,
            network=terms.network,
            device=name,
            per_machine=plan.cluster.per_machine,
        )
        for target, row in zip(targets, answer.rows, strict=True)
    )
    if picture is not None:
        write_picture(picture, answer.picture(form=form))
    return answer


def _measured_plan(
    subject: Subject, targets: list[Target], device: Device, link: Link, *, name: str, price: float | None
) -> Plan:
    """The inputs of predictions, measured on this machine. ``name``: the device's; ``price``: None for the device's."""
    recorded = Recorded.of(subject.folder, subject.run)
    small, large, start = _measured(subject.run, targets)
    memory = memory_of(targets, device.memory, name)  # last: it runs torch in this process, which forks ranks
    price = price if price is not None else device.price or None
    return Plan(
        subject.run,
        targets,
        catalog.cluster(device, link),
        device.memory,
        small,
        large,
        memory,
        price,
        start,
        recorded.assumptions,
        recorded.checkpoints,
    )


def _answer(plan: Plan, *, network: str, device: str) -> Scale:
    """The predictions of a plan. ``network``, ``device``: their names."""
    others, unpredicted = plan.others()
    return Scale(
        folder=plan.large.folder,
        parallel=plan.run.parallel.name,
        network=network,
        device=device,
        measured=plan.large.updates.seconds,
        varied=max(plan.small.updates.varied, plan.large.updates.varied),
        rows=plan.rows(),
        others=others,
        unpredicted=unpredicted,
        earlier=predicted.record(),
        checkpoints=plan.checkpoints,
        spread=plan.assumptions.spread,
    )


def _measured(run: RunConfig, targets: Sequence[Target]) -> tuple[MeasuredStep, MeasuredStep, Measured]:
    """The steps with the smallest and with the largest micro-batch, and what predictions start from."""
    sizes = sorted({target.samples for target in targets})
    large = measured_step(run, samples=sizes[-1])
    small = large if sizes[0] == sizes[-1] else measured_step(run, samples=sizes[0])
    alone = wrapped_updates(run, samples=sizes[-1]) or large.updates
    launches = between_launches(on_gpus=run.on_gpus)
    return small, large, Measured(1, alone.seconds, large.step, error=alone.error, launches=launches)
