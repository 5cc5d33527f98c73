"""Predictions of runs on this machine, and what they then took: ``python -m tests.answers.scale.here predict [case]``.

``predict`` measures one rank, two ranks and the network of each case of CASES, and writes predictions into
here_held_out.json; committed before ``compare`` runs them; ``table`` prints both for docs/scale-accuracy.md. here.json
has the runs to which the intervals were fitted since (``fitted.py``). Cases of machines with a limited bandwidth run in
network namespaces (``tests/launchers/nodes/cluster.py``), as root. Needs a machine that does nothing else.
"""

import json
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from manyheads.runner.answers.measure.subject import subject_of
from manyheads.runner.answers.scale.measured_step import MeasuredStep
from manyheads.runner.answers.scale.targets import OF_DEVICE, Target, target_of
from manyheads.runner.config import saved
from manyheads.runner.config.freeze import checked
from manyheads.runner.errors import ConfigurationError, RunFailed
from manyheads.runner.option.run_config import RunConfig
from tests.benchmarks.scaling.network_here import Sums
from tests.benchmarks.scaling.ranks_here import RanksHere
from tests.benchmarks.scaling.validated import Compared
from tests.benchmarks.scaling.validation import FEW, measured_basis, predictions

if TYPE_CHECKING:
    from tests.launchers.nodes.cluster import Cluster

DEVELOPMENT, HELD_OUT = (Path(__file__).with_name(f"{name}.json") for name in ("here", "here_held_out"))
RANKS = (2, 3, 4)
DIGITS, GPT = "data=digits", "experiment=gpt_nano"
CNN, MLP, NANO = "small_cnn", "mlp of 4.2 million weights", "gpt nano"
CNN_ADAM, NANO_ADAM = f"{CNN} with Adam", f"{NANO} with AdamW"
MODELS = {
    CNN: (DIGITS, "model=small_cnn", "data.batch_size=64"),
    MLP: (DIGITS, "model=mlp", "model.width=1024", "data.batch_size=64"),
    NANO: (GPT, "data.batch_size=4"),
}
MODELS[CNN_ADAM] = (*MODELS[CNN], "optimizer=adam")
MODELS[NANO_ADAM] = (*MODELS[NANO], "optimizer=adamw", "parameters.groups=[]")
STRATEGIES = {
    "DDP": ("parallel=ddp",),
    "Horovod over Gloo": ("parallel=horovod", "launcher=horovodrun", "launcher.controller=gloo"),
    "Horovod over MPI": ("parallel=horovod", "launcher=mpirun"),
    "FSDP": ("parallel=fsdp",),
    "ZeRO-1": ("parallel=zero1",),  # with optimizer=adam in here.json
    "local SGD": ("parallel=local_sgd", "parallel.start=0"),
    "pipeline": ("parallel=pipeline", "trainer.grad_accumulation=8", "data.batch_size=128", "model.depth=6"),
}
RATES = {"100 Mb/s": "100mbit", "1 Gb/s": "1gbit"}  # between machines that are network namespaces
HERE = ("here", "elsewhere")  # in place of a rate: all cases of one machine, or of several
# As the namespaces' own /sys has no control groups.
GROUPS = "mount -t tmpfs none /sys/fs/cgroup; mkdir /sys/fs/cgroup/cpu; mount -t cgroup -o cpu cpu /sys/fs/cgroup/cpu;"


class Case(NamedTuple):
    """``rate``: of the network between machines; empty for ranks of one machine."""

    strategy: str
    model: str
    rate: str = ""

    def __str__(self) -> str:
        return f"{self.strategy}{self.rate and f' over {self.rate}'}, {self.model}"

    @property
    def words(self) -> tuple[str, ...]:
        return (*MODELS[self.model], *STRATEGIES[self.strategy], "trainer.device=cpu")


CASES = [
    *(Case(strategy, NANO_ADAM) for strategy in ("FSDP", "ZeRO-1", "Horovod over Gloo", "Horovod over MPI")),
    *(Case(strategy, CNN_ADAM) for strategy in ("FSDP", "ZeRO-1")),
    Case("local SGD", MLP),
    Case("DDP", MLP, "1 Gb/s"),
    Case("FSDP", NANO_ADAM, "1 Gb/s"),
]


@dataclass
class Here(RanksHere):
    """Ranks of a case. What cases have in common is measured once: one rank of a model, and the network of a library.

    ``hosts``: of machines that are network namespaces, one rank each.
    """

    case: Case = CASES[0]
    hosts: tuple[str, ...] = ()
    common: dict[Any, Any] = field(default_factory=dict)

    def started_on(self, ranks: int, *, batch: int) -> RunConfig:
        if not self.hosts:
            return super().started_on(ranks, batch=batch)
        hosts = f"launcher.hosts=[{','.join(self.hosts[:ranks])}]"
        changes = [hosts, f"launcher.threads_per_rank={self.threads}", f"data.batch_size={batch}"]
        composed, folders = saved.composed(self.run.written, changes, chosen=set())
        return checked(composed, folders=folders)

    def alone(self, samples: int) -> MeasuredStep:
        model = json.dumps([self.run.written["model"], self.run.optimizer.name, samples])
        return self._once(model, lambda: super(Here, self).alone(samples))

    def sums(self, target: Target) -> Sums:
        library = self.run.launcher.name if self.run.parallel.name == "horovod" else "gloo"
        return self._once((library, target.devices), lambda: super(Here, self).sums(target))

    def _once(self, key: Any, measure: Callable[[], Any]) -> Any:
        if key not in self.common:
            self.common[key] = measure()
        return self.common[key]


def targets(run: RunConfig) -> list[Target]:
    return [target_of(run, count, OF_DEVICE) for count in RANKS]


def predict(here: Here) -> dict[str, Any]:
    """What is committed before the runs: the predictions, and what they follow from."""
    basis = measured_basis(here, targets(here.run))
    found = predictions(here.run, targets(here.run), basis)
    rows = [{"start": start, **asdict(each)} for start, several in found.items() for each in several]
    return {
        "alone": basis.large.updates.seconds,
        "wrapped": basis.wrapped and basis.wrapped.seconds,
        "two": basis.two.seconds,
        "again": basis.again.seconds,
        "varied": basis.varied,
        "slowdown": basis.slowdown,
        "link": asdict(basis.link(here.run)),
        "predictions": [{key: row[key] for key in ("start", "devices", "seconds", "low", "high")} for row in rows],
    }


def compare(here: Here) -> dict[str, Any]:
    """What the runs took."""
    found = {str(each.devices): here.updates(each) for each in targets(here.run)}
    return {
        "measured": {count: each.seconds for count, each in found.items()},
        "varied_then": max(each.varied for each in found.values()),
    }


def rows_of(content: dict[str, Any]) -> list[Compared]:
    return [Compared(**each, measured=content["measured"][str(each["devices"])]) for each in content["predictions"]]


def table(found: dict[str, Any]) -> str:
    """Errors of the predicted times in per cent, in Markdown."""
    columns = [(1, 2), (1, 3), (1, 4), (FEW, 3), (FEW, 4)]
    titles = ["run", *(f"{a}→{b}" for a, b in columns), "mean", "within"]
    lines = [f"| {' | '.join(titles)} |", "|" + "---|" * len(titles)]
    for name, content in found.items():
        if "measured" in content:
            rows = {(each.start, each.devices): each for each in rows_of(content)}
            errors = [100 * rows[key].error for key in columns]
            mean, within = sum(map(abs, errors)) / len(errors), sum(each.is_within for each in rows.values())
            cells = " | ".join(f"{each:+.1f}" for each in errors)
            lines.append(f"| {name} | {cells} | {mean:.1f} | {within}/{len(rows)} |")
    return "\n".join(lines)


def read(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    return found


@contextmanager
def machines(rate: str) -> "Iterator[Cluster]":
    from tests.launchers.nodes.cluster import started

    with tempfile.TemporaryDirectory() as folder, started(Path(folder), max(RANKS), first=GROUPS) as cluster:
        for node in cluster.nodes:
            cluster.narrow(node, rate=RATES[rate], queue=2**22)
        yield cluster


def on_machines(what: str, chosen: str, rate: str) -> None:
    """Run this program on the first of several machines."""
    with machines(rate) as cluster:
        hosts = ",".join(f"{cluster.address(node)}:1" for node in cluster.nodes)
        shell = f"launcher.remote_shell='{cluster.shell} {{host}}'"
        words = ("-m", "tests.answers.scale.here", what, chosen, rate, hosts, shell)
        subprocess.run(cluster.on(1, sys.executable, *words), check=True)


def do(what: str, cases: list[Case], hosts: tuple[str, ...], extra: tuple[str, ...], common: dict[Any, Any]) -> None:
    """Cases of one model and one network. ``common``: as in ``Here``."""
    more = ("launcher=torchrun", f"launcher.hosts=[{','.join(hosts[:FEW])}]", *extra) if hosts else ()
    runs = {case: subject_of((*case.words, *more)).run for case in cases}
    first = Here(runs[cases[0]], max(RANKS), case=cases[0], hosts=hosts, common=common)
    with first.limited(samples=targets(first.run)[0].samples):
        for case, run in runs.items():
            if what == "compare" and str(case) not in read(HELD_OUT):
                continue  # it could not be predicted
            try:
                found = {"predict": predict, "compare": compare}[what](replace(first, run=run, case=case))
            except (ConfigurationError, RunFailed):
                traceback.print_exc()  # the other cases remain
                continue
            before = read(HELD_OUT)
            content = {**(before.get(str(case), {}) if what == "compare" else {}), **found}
            HELD_OUT.write_text(json.dumps({**before, str(case): content}, indent=1) + "\n")
            print(case, json.dumps(found), file=sys.stderr)


def main(what: str, chosen: str = "", rate: str = "", hosts: str = "", *extra: str) -> None:
    if what == "table":
        sys.stdout.write(f"{table(read(DEVELOPMENT))}\n\n{table(read(HELD_OUT))}\n")
        return
    wanted = [each for each in CASES if chosen in str(each) and rate in (each.rate, "", HERE[bool(each.rate)])]
    common: dict[Any, Any] = {}
    for (_, own_rate), cases in groupby(wanted, key=lambda each: (each.model, each.rate)):
        if own_rate and not hosts:
            on_machines(what, str(next(cases)), own_rate)
        else:
            do(what, [*cases], tuple(hosts.split(",")) if hosts else (), extra, common)


if __name__ == "__main__":
    main(*sys.argv[1:])
