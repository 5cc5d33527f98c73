"""What `make test-gpu` needs besides: runs on the GPU by the real command, and a table of what ran and what did not."""

import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

from manyheads.runner.config.lookup import unavailable
from manyheads.runner.machine import hardware
from manyheads.runner.run.run_folder import RunFolder
from tests.conftest import RUN, execute

Outcome = tuple[str, float, str]  # what came of a test, its seconds, what it measured
_outcomes: dict[str, Outcome] = {}

# Training lowers the loss by 2.6 %, which is what a wrong gradient would change. What differs by rounding stays small
# (measured on a CPU): fp32 in another order 2e-8 of the loss, float16 and bfloat16 1e-4.
TINY = (
    "trainer.device=cuda",
    "data.batch_size=32",
    "model.width=32",
    "trainer.max_steps=20",
    "trainer.log_every=5",
    "optimizer.lr=0.05",
    "scheduler.warmup_epochs=0",
)
# The same with BatchNorm: training lowers the loss by 3.4 %; fp32 in another order 5e-7, float16 8e-6, bfloat16 3e-5.
NORMALIZED = ("model=custom", "model._target_=tests.zoo.Normalized", "+model.width=16", "optimizer.lr=0.02")
# BatchNorm, convolutions of several shapes, enough work for a GPU to be seen in its memory. Its training at this batch
# is chaotic: each update multiplies a difference by some 10. Of repeated runs in fp32 on an H200, losses differed by 0,
# 1e-7, 1e-6, 4e-5, 4e-4, 3e-3 of their value at the first six updates. Compare no more than TWO_UPDATES.
RESNET = (
    "model=resnet18",
    "data=synthetic",
    "data.image_size=64",
    "data.num_classes=10",
    "data.train_samples=320",
    "data.val_samples=64",
    "optimizer.lr=0.005",
)
# The loss of the first is of the forward pass, that of the second of the first one's gradients and step: without them
# it would be 5.4 % higher. Rounding changes it by 0.3 % in float16, 0.6 % in bfloat16 (on a CPU).
TWO_UPDATES = (*RESNET, "trainer.max_steps=2", "trainer.log_every=1")
Train = Callable[..., RunFolder]


@pytest.fixture
def train(tmp_path: Path, record_property: Callable[[str, Any], None]) -> Train:
    """``python run.py`` on the GPU with these overrides over TINY; the folder of the completed run."""

    def run(*overrides: str, name: str = "run", timeout: float = 280) -> RunFolder:
        folder = RunFolder(tmp_path / name)
        keys = {override.partition("=")[0].lstrip("+") for override in overrides}
        kept = [o for o in TINY if o.partition("=")[0] not in keys and not (o.startswith("model.") and "model" in keys)]
        command = [sys.executable, str(RUN), *overrides, *kept, f"hydra.run.dir={folder.path}"]
        done = execute(*command, cwd=tmp_path, timeout=timeout)
        assert done.code == 0, f"{' '.join(command)}\n{done.out}\n{done.err}"
        result = folder.read_result()
        assert result["status"] == "completed"
        assert result["device"] in hardware.gpu_names()
        speed, memory = result["samples_per_second"], max(result["peak_memory_mb"])
        record_property("measured", f"{speed or 0:,.0f} samples/s, {memory:,.0f} MB")
        return folder

    return run


def words(item: pytest.Item) -> str:
    """What the table calls a test: what its `gpu` mark says, or else its own name."""
    mark = item.get_closest_marker("gpu")
    return mark.args[0] if mark and mark.args else item.name


def obstacle(item: pytest.Item) -> str | None:
    """Why a test can't run on this machine: no GPU, or ``needs``, pairs of group and option, that are missing."""
    if not hardware.gpu_names():
        return "no GPU"
    mark = item.get_closest_marker("gpu")
    needs, gpus = (mark.kwargs.get("needs", ()), mark.kwargs.get("gpus", 1)) if mark else ((), 1)
    if len(hardware.gpu_names()) < gpus:
        return f"{gpus} GPUs are needed, and {len(hardware.gpu_names())} can be seen"
    return next((reason for group, option in needs if (reason := unavailable(group, option))), None)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what can't run, and remember why."""
    ours = [item for item in items if item.get_closest_marker("gpu")]
    reasons = {item.nodeid: reason for item in ours if (reason := obstacle(item))}
    for item in ours:
        if reason := reasons.get(item.nodeid):
            _outcomes[words(item)] = "not run", 0, reason
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in reasons])
    items[:] = [item for item in items if item.nodeid not in reasons]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of xdist tells what it left out; its reports are sent by themselves."""
    if (told := getattr(session.config, "workeroutput", None)) is not None:
        told["not run"] = {name: reason for name, (outcome, _, reason) in _outcomes.items() if outcome == "not run"}


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    left_out = getattr(node, "workeroutput", {}).get("not run", {})
    _outcomes.update({name: ("not run", 0, reason) for name, reason in left_out.items()})


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    outcome = yield
    if item.get_closest_marker("gpu"):
        parameters = f": {item.callspec.id}" if hasattr(item, "callspec") else ""
        outcome.get_result().user_properties.append(("feature", words(item) + parameters))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    known = dict(report.user_properties)
    if "feature" in known and (report.when == "call" or report.failed):
        _outcomes[str(known["feature"])] = report.outcome, report.duration, str(known.get("measured", ""))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if not _outcomes:
        return
    table = Table(title="On this machine's GPU", title_justify="left")
    for column in ("feature", "outcome", "seconds", "measured, or why not"):
        table.add_column(column, overflow="fold")
    for name, (outcome, seconds, note) in sorted(_outcomes.items(), key=lambda item: item[1][0] == "not run"):
        table.add_row(name, outcome, f"{seconds:.1f}" if seconds else "", note)
    text = StringIO()
    Console(file=text, width=terminalreporter._tw.fullwidth).print(table)
    terminalreporter.write("\n" + text.getvalue())
    if not any(outcome != "not run" for outcome, _, _ in _outcomes.values()):
        cause = f": {hardware.NO_GPU}" if not hardware.gpu_names() else ""
        terminalreporter.write_line(f"Nothing could run{cause}.", red=True)
