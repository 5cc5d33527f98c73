"""The whole command: healthy models are equal on every backend, each broken one is found with its cause."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from manyheads.runner.commands.parity import parity
from manyheads.runner.config.lookup import options, unavailable
from manyheads.runner.respond import respond
from manyheads.runner.run.run_folder import RunFolder
from tests.conftest import ROOT, Done, execute
from tests.in_process import SMALL
from tests.launchers.conftest import descendants
from tests.needs import PARTLY, missing
from tests.tail import tail
from tests.task.test_own_task import OWN

pytestmark = pytest.mark.ci

TINY = tuple(override for override in SMALL if not override.startswith("model."))
BROKEN = "tests.answers.parity.broken"
OTHERS = [name for name in options("parallel") if name != "single"]


@pytest.fixture
def compare(tmp_path, monkeypatch, capsys):
    """``python -m runner parity`` in this process, which keeps torch warm for the ranks from test to test."""
    monkeypatch.chdir(tmp_path)

    def run(*overrides: str, steps: str = "2") -> Done:
        given = {override.split("=")[0] for override in overrides}
        chosen = [*(o for o in TINY if o.split("=")[0] not in given), *overrides]
        code = respond("", lambda: parity(chosen, steps=steps))
        out, err = capsys.readouterr()
        return Done(code, " ".join(out.split()), " ".join(err.split()))

    return run


def model(name: str, *more: str) -> tuple[str, ...]:
    return "model=custom", f"model._target_={BROKEN}.{name}", *more


def loss(name: str) -> tuple[str, ...]:
    return *model("Plain"), f"loss._target_={BROKEN}.{name}"


MEAN = ("task.reduction=mean",)  # which is not true


def large_files(path: Path) -> list[Path]:
    return [*path.rglob("*.pt"), *path.rglob("*.aside")]


@pytest.mark.tail
@pytest.mark.processes
def test_the_default_model_is_the_same_on_every_backend(tmp_path, record_property):
    """As a user would call it: the default model and data, all strategies, two ranks."""
    quick = ("model.width=8", "data.batch_size=24", "trainer.device=cpu", "launcher.threads_per_rank=1")
    command = (sys.executable, "-m", "manyheads.runner", "parity", *quick, "--steps", "2", "launcher.nproc_per_node=2")
    done = execute(*command, cwd=tmp_path)
    assert done.code == 0, done.out + done.err
    assert max(map(len, done.out.splitlines())) <= 80
    table = {row[1]: row for line in done.out.splitlines() if (row := line.split()) and row[0] == "│"}
    assert sorted(table) == OTHERS
    if reason := missing("horovod"):
        record_property(PARTLY, reason)
    for name in OTHERS:
        row = table[name]
        if unavailable("parallel", name):
            assert row[-3:-1] == ["not", "here"]
            assert f"{name} is unavailable: " in done.out
        else:
            assert row[-2] == "equal"
            assert row[3] == ("1" if name == "dp" else "2")
    assert "equal:" in " ".join(done.out.splitlines()[-2:])  # where there are many strategies, in two lines
    assert "Cause" not in done.out
    (folder,) = (tmp_path / "outputs" / "parity").glob("*/*")
    assert large_files(folder) == []
    for name in ("single", "ddp"):
        result = RunFolder(folder / name).read_result()
        assert result["status"] == "completed"
        assert result["steps"] == 2
        assert {file.name for file in (folder / name).glob("*.csv")} == set()


@pytest.mark.processes
@pytest.mark.parametrize(
    "overrides",
    [
        ("launcher.nproc_per_node=3", "data.batch_size=12", "trainer.grad_accumulation=2", "trainer.clip_norm=0.1"),
        tail(("optimizer=adamw", "data.drop_last=false", "data.train_samples=13", "trainer.epochs=1")),
        tail((*model("Unused"), "parallel.find_unused_parameters=true")),
    ],
    ids=["3 ranks", "an incomplete batch", "unused, and ddp knows"],
)
def test_a_healthy_model_is_not_accused(compare, overrides):
    done = compare("parallel=dp,ddp", *overrides)
    assert done.code == 0, done.out + done.err
    assert "Cause" not in done.out
    assert ("Note: auxiliary.weight, auxiliary.bias get no gradient" in done.out) == ("Unused" in str(overrides))


@pytest.mark.processes
@pytest.mark.parametrize(
    ("overrides", "cause"),
    [
        (model("Normalized"), "body.1 (BatchNorm2d), like 1 more, computes its statistics over each rank's share"),
        (model("Dropping"), "dropout (Dropout) draws random numbers, different ones on each rank"),
        (model("Unused"), "auxiliary.weight, auxiliary.bias get no gradient, and DistributedDataParallel waits"),
        (
            model("Ranked", "+model.what=weights"),
            "head.weight: the initial weights that the model is built with on rank 1",
        ),
        (model("Centred"), "The model itself (Centred) is the first module with a different output for the same input"),
        tail(
            (*model("Plain"), "+loss.reduction=sum", *MEAN), "All outputs agree, but the loss is 1/2 of the baseline's"
        ),
        ((*loss("FixedAverage"), *MEAN), "All outputs agree, but the loss is 1/2 of the baseline's"),
        ((*loss("MeanOfClasses"), *MEAN), "All outputs agree, but the loss is"),
    ],
    ids=["BatchNorm", "dropout", "unused", "weights", "batch", "sum", "fixed average", "mean of classes"],
)
def test_a_broken_model_is_found_with_its_cause(compare, tmp_path, overrides, cause):
    done = compare("parallel=ddp", *overrides)
    assert done.code == 3, done.out + done.err
    assert done.out.count("Cause (ddp): ") == 1
    assert f"Cause (ddp): {cause}" in done.out
    how = "failed" if "no gradient" in cause else "different"
    assert f"{how}: ddp against single (tolerance 1e-09, 2 steps)" in done.out
    assert large_files(tmp_path) == []


@pytest.mark.processes
def test_a_task_whose_loss_depends_on_how_the_batch_is_cut_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    ranks = ("parallel=ddp", "launcher.nproc_per_node=2", "trainer.device=cpu", "launcher.threads_per_rank=1")
    code = respond("", lambda: parity([*OWN, f"task._target_={BROKEN}.Careless", *ranks], steps="1"))
    said = " ".join(capsys.readouterr().out.split())
    assert code == 3, said
    assert "what the task Careless computes depends on how a batch is split" in said
    assert "let the task's count(batch) return what it averages over" in said


@pytest.mark.processes
@pytest.mark.tail
@pytest.mark.needs("horovod")
def test_horovod_does_not_hide_a_buffer_that_depends_on_the_rank(compare):
    done = compare("parallel=dp,horovod", *model("Ranked", "+model.what=buffer"))
    assert done.code == 3, done.out + done.err
    assert "Cause (horovod): scale: the buffers that the model is built with on rank 1" in done.out
    assert "Cause (horovod): The model itself (Ranked)" in done.out
    assert "Cause (dp)" not in done.out
    assert "buffer scale" in done.out


@pytest.mark.processes
def test_an_exchange_that_rounds_is_named(compare, tmp_path):
    (tmp_path / "scratch").mkdir()
    (tmp_path / "outputs").symlink_to("scratch")  # as many have it on clusters
    done = compare("parallel=ddp", *model("Plain"), "parallel.compression=fp16")
    assert done.code == 3, done.out + done.err
    assert "parallel.compression=fp16" in done.out


@pytest.mark.parametrize(
    ("overrides", "steps", "words"),
    [
        (("parallel=ddp",), "0", "--steps 0 is not allowed. Allowed: an integer of at least 1."),
        (("parallel=ddp",), "many", "--steps many is not allowed"),
        (("parallel=dpp",), "1", "Did you mean dp"),
        (("parallel=dp", "parallel.num_groups=1"), "1", "is a key of parallel=horovod only"),
        (("parallel=ddp", "data.batch_size=9"), "1", "The nearest values that work"),
        (("parallel=ddp", "optimizer=sgdd"), "1", "optimizer=sgdd: there is no such option"),
        (("parallel=ddp", "trainer.nonsense=1"), "1", "trainer.nonsense is not a key"),
        (("parallel=ddp", "nonsense"), "1", "Overrides are written group=option or key=value"),
        (("parallel=single",), "1", "is the baseline itself"),
    ],
)
def test_mistakes_are_refused_before_anything_is_written(compare, tmp_path, overrides, steps, words):
    done = compare(*overrides, steps=steps)
    assert done.code == 2
    assert words in done.err
    assert "Traceback" not in done.err
    assert [*tmp_path.iterdir()] == []


@pytest.mark.skipif("apex" not in options("parallel") or not unavailable("parallel", "apex"), reason="Apex is here")
def test_nothing_to_compare_with_is_a_mistake(compare, tmp_path):
    done = compare("parallel=apex")
    assert done.code == 2
    assert "there is nothing to compare with single" in done.err
    assert "Apex" in done.err
    assert [*tmp_path.iterdir()] == []


@pytest.mark.processes
def test_a_baseline_that_fails_is_a_failure(compare, tmp_path):
    done = compare("parallel=ddp", "model=custom", "model._target_=torch.nn.Flatten")
    assert done.code in (1, 2)
    assert done.err.count("error: ") == 1
    assert large_files(tmp_path) == []


@pytest.mark.tail
@pytest.mark.processes
def test_a_signal_leaves_nothing_behind(tmp_path):
    overrides = (*TINY, "trainer.epochs=1000", "parallel=ddp")
    command = [sys.executable, "-m", "manyheads.runner", "parity", *overrides, "--steps", "20000"]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / ".names")},
    )
    deadline = time.monotonic() + 60
    while not [*tmp_path.rglob("step_3.pt")]:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    started = descendants(process.pid)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 143, out
    assert "Traceback" not in out
    assert large_files(tmp_path) == []
    assert psutil.wait_procs(started, timeout=5)[1] == []
    (folder,) = (tmp_path / "outputs" / "parity").glob("*/*")
    assert RunFolder(folder / "single").read_result()["status"] == "interrupted"
    assert RunFolder(folder / "ddp").read_result() is None


def test_the_parent_s_side_imports_no_torch():
    own = ("parity.parity_plan", "parity.parity_causes", "parity.answer", "measure.steps_task")
    names = ["manyheads.runner.commands.parity", *(f"manyheads.runner.answers.{name}" for name in own)]
    code = f"import importlib, sys\nfor name in {names!r}: importlib.import_module(name)\nprint('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr
