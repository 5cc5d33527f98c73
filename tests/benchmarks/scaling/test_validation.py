"""Predictions that are compared with runs here: measurements that are given, the network that follows from them."""

import json
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pytest

from manyheads.runner.answers.scale.measured_step import MeasuredStep, Updates
from manyheads.runner.answers.scale.simulator.network import Cluster, Group, Link
from manyheads.runner.answers.scale.simulator.step import DeviceUpdate, Unit
from manyheads.runner.answers.scale.targets import Target, target_of
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine import hardware
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.run.json_schema import to_json
from tests.answers.scale import here
from tests.benchmarks.scaling import validation
from tests.benchmarks.scaling.network_here import BESIDE, PAYLOADS, Sums, link_of
from tests.benchmarks.scaling.ranks_here import RanksHere
from tests.benchmarks.scaling.test_cpu_quota import quota_or_skip
from tests.benchmarks.scaling.validated import Compared
from tests.benchmarks.scaling.validation import measured_basis, predictions, validate
from tests.conftest import ROOT, execute
from tests.in_process import small

TRUE = Link(latency=2e-4, bandwidth=2e8, achieved=1.0, start=1e-4, algorithms=("ring",))
STEP = DeviceUpdate(tuple(Unit(2e6, 0.25, 1e5) for _ in range(4)), 0.05, 0.1, optimizer=0.01, samples=4)
DDP = ("parallel=ddp", "launcher.nproc_per_node=2")


def sums(ranks: int, link: Link = TRUE, *, slowdown: float = 0.5) -> Sums:
    cluster = Cluster(1, link, link)
    seconds = {size: cluster.seconds("all-reduce", size, Group(ranks), devices=ranks) for size in PAYLOADS}
    return Sums(ranks, seconds, slowdown)


@dataclass
class Given(RanksHere):
    """Ranks on TRUE whose updates take 0.16 s alone, and 0.2 s on several; ``asked``: what was measured, in order."""

    asked: list[str] = field(default_factory=list)

    def alone(self, samples: int) -> MeasuredStep:
        self.asked.append("alone")
        return MeasuredStep(replace(STEP, samples=samples), Updates(0.16), Path("alone"))

    def wrapped(self, samples: int) -> Updates | None:
        self.asked.append("wrapped")
        return None

    def updates(self, target: Target) -> Updates:
        self.asked.append(f"updates {target.devices}")
        return Updates(0.2, 0.02, 0.01)

    def sums(self, target: Target) -> Sums:
        self.asked.append(f"sums {target.devices}")
        return sums(target.devices)

    @contextmanager
    def limited(self, *, samples: int) -> Iterator[None]:
        yield


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is measured of runs, none of which is started."""
    asked: list[str] = []
    monkeypatch.setattr(validation, "RanksHere", partial(Given, asked=asked))
    return asked


def test_the_link_is_that_of_which_the_sums_were_taken() -> None:
    found = link_of(sums(2), sums(4), cycle=0.0)
    assert (found.latency, found.start) == pytest.approx((TRUE.latency, TRUE.start), rel=0.2)
    assert found.rate(4e6) == pytest.approx(TRUE.bandwidth, rel=0.05)


def test_half_a_cycle_of_checks_is_not_counted_twice() -> None:
    plain, checked = (link_of(sums(2), sums(4), cycle=cycle) for cycle in (0.0, 1e-4))
    assert plain.start - checked.start == pytest.approx(5e-5)
    assert link_of(sums(2), sums(4), cycle=1.0).start > 0


def test_a_network_of_two_ranks_alone_is_a_link_too() -> None:
    found = link_of(sums(2), sums(2), cycle=0.0)
    assert found.start + 2 * found.latency == pytest.approx(TRUE.start + 2 * TRUE.latency, rel=0.1)


def test_a_network_without_any_clear_bandwidth_is_one_of_latency() -> None:
    flat = Sums(2, dict.fromkeys(PAYLOADS, 0.01), 0.0)
    found = link_of(flat, replace(flat, ranks=4), cycle=0.0)
    assert min(found.latency, found.start, found.bandwidth) > 0


def test_rounds_become_medians() -> None:
    found = Sums.of(2, {"4096": [3.0, 1.0, 2.0], BESIDE: [0.1, 0.9, 0.5]})
    assert (found.seconds, found.slowdown) == ({4096: 2.0}, 0.5)
    assert found.error == pytest.approx(math.sqrt(math.pi / 2) / math.sqrt(3) / 2)


def test_more_ranks_are_predicted_from_one_and_from_two() -> None:
    run = RunConfig.of(small(*DDP, "parallel.bucket_cap_mb=1"))
    targets = [target_of(run, count, "device") for count in (2, 3, 4)]
    basis = measured_basis(Given(run, 4), targets)
    found = predictions(run, targets, basis)
    assert {start: [each.devices for each in rows] for start, rows in found.items()} == {1: [2, 3, 4], 2: [3, 4]}
    assert 0.16 < found[1][0].seconds < found[1][2].seconds
    assert found[2][0].seconds > 0.2
    cheap = predictions(run, targets, replace(basis, few=sums(2, slowdown=0.0), many=sums(4, slowdown=0.0)))
    assert cheap[1][0].seconds < found[1][0].seconds


def test_everything_that_predictions_follow_from_is_measured_before_the_runs(given: list[str]) -> None:
    found = validate([*DDP, "trainer.device=cpu"], devices="2,4", batch="device")
    assert given == ["alone", "sums 2", "wrapped", "updates 2", "updates 2", "sums 4", "updates 2", "updates 4"]
    assert [(each.start, each.devices, each.measured) for each in found.rows] == [(1, 2, 0.2), (1, 4, 0.2), (2, 4, 0.2)]
    assert found.cpus == pytest.approx(0.9 * hardware.cpu_cores() / 4)


def test_launches_that_differ_widen_the_intervals() -> None:
    run = RunConfig.of(small(*DDP))
    targets = [target_of(run, count, "device") for count in (2, 3)]
    basis = measured_basis(Given(run, 3), targets)
    near, far = (predictions(run, targets, replace(basis, again=Updates(seconds))) for seconds in (0.2, 0.3))
    for start in (1, 2):
        assert [each.seconds for each in near[start]] == [each.seconds for each in far[start]]
        assert all(one.high < other.high for one, other in zip(near[start], far[start], strict=True))


def test_what_is_shown(given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    found = validate([*DDP, "trainer.device=cpu"], devices="3", batch="device")
    rows = [Compared(1, 2, 0.2, 0.19, 0.22, 0.21), Compared(1, 4, 0.3, 0.29, 0.31, 0.2)]
    replace(found, rows=rows, varied=0.5).show()
    text = " ".join(capsys.readouterr().out.split())
    for words in ("-4.8 %", "+50.0 %", "Mean absolute error 27.4 %; 1 of 2", "the machine was busy"):
        assert words in text
    assert to_json(found)["network"]["algorithms"] == ["ring"]


@pytest.mark.parametrize(
    ("words", "key"),
    [
        (["parallel=dp"], "launcher"),
        (["parallel=single"], "parallel"),
    ],
)
def test_runs_without_ranks_on_this_machine_are_refused(words: list[str], key: str, given: list[str]) -> None:
    with pytest.raises(ConfigurationError) as refused:
        validate([*words, "trainer.device=cpu"], devices="2", batch="device")
    assert refused.value.key == key
    assert not given


@pytest.mark.parametrize(("devices", "words"), [("1", "above 1"), ("2,64", "up to"), ("two", "whole numbers")])
def test_numbers_of_ranks_that_cannot_be_compared_here_are_refused(
    devices: str, words: str, given: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hardware, "cpu_cores", lambda: 2)
    with pytest.raises(ConfigurationError, match=words) as refused:
        validate([*DDP, "trainer.device=cpu"], devices=devices, batch="device")
    assert refused.value.key == "--devices"
    assert not given


@pytest.mark.tail
@pytest.mark.processes
@pytest.mark.parametrize("parallel", ["ddp", "horovod"])
def test_ranks_with_quotas_are_predicted_and_compared(
    tmp_path: Path, parallel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with quota_or_skip():
        pass
    words = (f"parallel={parallel}", "data=digits", "trainer.device=cpu", "--devices=2,3", "--batch=device")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    found = execute(sys.executable, "-m", "tests.benchmarks.scaling", *words, "--json", cwd=tmp_path, timeout=300)
    result = json.loads(found.out)["result"]
    assert [(each["start"], each["devices"]) for each in result["rows"]] == [(1, 2), (1, 3), (2, 3)]
    assert all(0 < each["low"] < each["seconds"] < each["high"] for each in result["rows"])
    owners = {path.name.split("-")[1] for path in Path("/sys/fs/cgroup").glob("**/manyheads-*")}
    assert all(Path("/proc", each).exists() for each in owners)  # other tests may be running, with groups of their own


def test_the_table_has_errors_and_how_many_are_within() -> None:
    keys = [(1, 2), (1, 3), (1, 4), (2, 3), (2, 4)]
    rows = [{"start": start, "devices": n, "seconds": 1.0, "low": 0.9, "high": 1.15} for start, n in keys]
    content = {"predictions": rows, "measured": {"2": 1.0, "3": 1.25, "4": 0.8}}
    assert here.table({"a": content, "b": {"predictions": rows}}).splitlines()[2:] == [
        "| a | +0.0 | -20.0 | +25.0 | -20.0 | +25.0 | 18.0 | 1/5 |"
    ]


def test_the_documentation_has_what_was_reached() -> None:
    assert here.table(here.read(here.HELD_OUT)) in (ROOT / "docs" / "scale-accuracy.md").read_text()
