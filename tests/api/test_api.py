"""``import manyheads`` from Python: runs and sweeps in processes of their own."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import manyheads
from manyheads.launchers.environment import variables_set
from manyheads.runner.errors import Unavailable, UnknownName, WrongValue
from manyheads.runner.run import program, seal
from manyheads.runner.run.answer import REPLY_TO
from manyheads.runner.run.program import Program
from tests.conftest import FAST, ROOT, execute

pytestmark = pytest.mark.processes


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


class Warm(Program):
    """A command in a fork of a process that has imported torch already."""

    def run(self, *, on_line, **_):
        with variables_set({REPLY_TO: self.environment[REPLY_TO]}):
            done = execute(*self.command, cwd=Path.cwd())
        for line in (done.out + done.err).splitlines(keepends=True):
            on_line(line)
        return done.code


@pytest.fixture
def warm(monkeypatch):
    """For what a command's end becomes in Python; that it is a process of its own, shows test_a_run."""
    monkeypatch.setattr(program, "Program", Warm)


def test_importing_it_changes_nothing_in_the_process():
    lists = "[*sys.meta_path], [*sys.path], {**os.environ}, {*sys.modules} - {'manyheads'}"
    state = f"({lists}, os.getcwd(), signal.getsignal(2))"
    code = f"import importlib, os, signal, sys, typing; before = {state}; import manyheads; assert {state} == before"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT / ".names")


def test_its_names():
    assert set(manyheads.__all__) <= set(dir(manyheads))
    assert all(hasattr(manyheads, name) for name in manyheads.__all__)
    assert callable(manyheads.run)
    with pytest.raises(AttributeError, match="has no attribute 'walk'"):
        manyheads.walk  # noqa: B018


@pytest.fixture(scope="module")
def conf(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("project") / "conf"
    (folder / "experiment").mkdir(parents=True)
    (folder / "experiment" / "mine.yaml").write_text("# @package _global_\nseed: 7\n")
    seal.trust(folder, None)
    return folder


def test_a_run(capsys, conf):
    result = manyheads.run([*FAST, "parallel=ddp", "experiment=mine"], conf=conf)
    assert result.status == "completed"
    assert result.folder.parent.parent == Path("outputs").resolve()
    assert result.metrics["val_loss"] > 0
    assert (result.config.parallel.name, result.config.seed) == ("ddp", 7)
    out = capsys.readouterr().out
    assert "epoch 1/" in out
    assert f"results │ {result.folder.relative_to(Path.cwd())}" in out


def test_a_refusal(capsys):
    with pytest.raises(manyheads.ConfigurationError, match=r"^trainer.epoch is not a key") as error:
        manyheads.run(["trainer.epoch=1"])
    assert "trainer.epochs" in str(error.value)
    assert (type(error.value), error.value.key) == (UnknownName, "trainer.epoch")
    assert "error:" not in "".join(capsys.readouterr())  # who catches it decides what is printed
    assert not list(Path("outputs").rglob("run.yaml"))
    assert not list(Path("outputs").glob("*/*"))


@pytest.mark.usefixtures("warm")
@pytest.mark.parametrize(
    ("typed", "kind", "key", "value", "allowed"),
    [
        ("trainer.log_every=0", WrongValue, "trainer.log_every", 0, ("an integer of at least 1",)),
        ("trainer.tta=flop", WrongValue, "trainer.tta", "flop", ("none", "flip", "flip_shift")),
        ("precision=tf32", Unavailable, "precision", "tf32", ()),
    ],
)
def test_a_refusal_has_the_key_and_what_is_allowed(typed, kind, key, value, allowed):
    """As in the process that refused it."""
    with pytest.raises(manyheads.ConfigurationError) as error:
        manyheads.run([typed, "trainer.device=cpu"])
    found = error.value
    assert (type(found), found.key, found.value, found.allowed) == (kind, key, value, allowed)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ("seed=1", "a list of overrides"),
        (["--multirum"], "--multirum: there is no such flag"),
        (["-m", "seed=1,2"], "Use manyheads.sweep"),
        (["--multirun"], "manyheads.sweep"),
    ],
)
def test_what_is_meant_otherwise(overrides, message):
    with pytest.raises(manyheads.ConfigurationError, match=message):
        manyheads.run(overrides)


@pytest.mark.usefixtures("warm")
def test_a_failure(tmp_path):
    (tmp_path / "net.py").write_text("class Net:\n    def __init__(self): raise ValueError('no such depth')\n")
    with pytest.raises(manyheads.RunFailed, match="ValueError: no such depth") as error:
        manyheads.run(["net.py:Net", *(each for each in FAST if "width" not in each), "hydra.run.dir=here"])
    assert "raise ValueError" in error.value.failure.traceback
    assert manyheads.Result.of("here").status == "failed"


@pytest.mark.tail
def test_an_interruption_ends_it_cleanly(monkeypatch):
    """As Ctrl-C, or a notebook's stop button, which both raise KeyboardInterrupt in the main thread."""
    write = sys.stdout.write
    said = []

    def interrupting(text: str) -> None:
        write(text)
        if text.startswith("epoch 1/") and not said:
            said.append(text)
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(sys.stdout, "write", interrupting)
    overrides = [each for each in FAST if "max_steps" not in each]
    with pytest.raises(KeyboardInterrupt):
        manyheads.run([*overrides, "trainer.epochs=100000", "hydra.run.dir=here"])
    assert manyheads.Result.of("here").status == "interrupted"


@pytest.mark.usefixtures("warm")
def test_a_sweep(monkeypatch):
    rows = manyheads.sweep([*FAST, "seed=1,2", "trainer.clip_norm=1", "trainer.clip_value=inf,1e-5"])
    assert [row.status for row in rows] == ["completed", "failed"] * 2
    assert rows[0].overrides == {"seed": 1, "trainer.clip_value": float("inf")} | rows[0].overrides
    assert "two ways to clip" in rows[1].reason
    assert rows[0].metrics["val_loss"] > 0
    assert (rows.folder / "comparison.csv").exists()
    assert rows[0].folder == rows.folder / "0"
    assert len(rows[1:3]) == 2
    try:
        table = rows.to_pandas().to_dict("records")
    except ModuleNotFoundError:  # no dependency of ours
        monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=list))
        table = rows.to_pandas()
    assert [line["seed"] for line in table] == [1, 1, 2, 2]
    assert [line["trainer.clip_value"] for line in table] == [float("inf"), 1e-5] * 2
    assert table[0]["val_loss"] == rows[0].metrics["val_loss"]


def test_a_sweep_that_is_refused():
    with pytest.raises(manyheads.ConfigurationError, match="there is no such option"):
        manyheads.sweep(["model=nothing,small_cnn"])
