"""``python -m runner reproduce`` of real runs: every verdict, with what leads to it."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from torch import Tensor, nn

from manyheads.runner.commands import reproduce as command
from manyheads.runner.commands.reproduce import last_step
from manyheads.runner.commands.reproduce.recorded import read_past
from manyheads.runner.commands.reproduce.verdict import DIFFERENT, EQUAL
from manyheads.runner.records.load_run import Run
from manyheads.runner.respond import respond
from manyheads.runner.run.run_folder import RunFolder
from tests.conftest import ROOT, RUN, Done, execute
from tests.tail import tail

pytestmark = pytest.mark.processes
SMALL = (
    *("data=synthetic", "data.image_size=8", "data.num_classes=3", "data.train_samples=192", "data.val_samples=37"),
    *("data.batch_size=12", "model.width=2", "trainer.epochs=4", "trainer.log_every=4", "trainer.device=cpu"),
    *("optimizer.lr=0.05", "launcher.threads_per_rank=1", "checkpoint.keep=2"),
)


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 64 steps, to be read only."""
    folder = tmp_path_factory.mktemp("past") / "run"
    done = execute(sys.executable, str(RUN), *SMALL, f"hydra.run.dir={folder}", cwd=folder.parent)
    assert done.code == 0, done.err
    return folder


def reproduce(tmp_path: Path, *arguments: str) -> tuple[Done, dict]:
    """How the command ended, and the result.json of the one new run, {} where there is none."""
    done = execute(sys.executable, "-m", "manyheads.runner", "reproduce", *arguments, cwd=tmp_path)
    results = list(tmp_path.glob("outputs/*/*/result.json"))
    return done, json.loads(results[0].read_text()) if results else {}


class Noisy(nn.Module):
    """Computes something slightly different in each run, as GPU kernels may. ``runs``: a file that counts them."""

    def __init__(self, *, num_classes: int, runs: str):
        super().__init__()
        self.head = nn.Linear(192, num_classes)
        with open(runs, "a+") as file:
            file.write("x")
            self.factor = 1 + 0.003 * (file.tell() % 3)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(images.flatten(1)) * self.factor


@pytest.mark.tail
@pytest.mark.parametrize(("lr", "verdict"), [(0.05, EQUAL), (0.5, DIFFERENT)])
def test_a_run_that_differs_from_itself_is_repeated_twice(tmp_path, monkeypatch, lr, verdict):
    monkeypatch.setattr(Run, "repeats_exactly", False)
    monkeypatch.chdir(tmp_path)
    noisy = ("model=custom", f"model._target_={__name__}.Noisy", f"+model.runs={tmp_path / 'runs'}", "trust=all")
    small = [word for word in SMALL if not word.startswith("model.")]
    done = execute(sys.executable, str(RUN), *small, *noisy, f"hydra.run.dir={tmp_path / 'past'}", cwd=tmp_path)
    assert done.code == 0, done.err
    found = command.reproduce("past", [f"optimizer.lr={lr}", "trust=all"], steps=None, code=False)
    assert found.verdict == verdict, found.reason
    assert found.rests_on["second_repetition"]["noise"] > 1e-3
    assert (tmp_path / "runs").read_text() == 3 * "x"


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """The command in this process, for what is refused before anything starts."""
    monkeypatch.chdir(tmp_path)

    def run(path: str, *overrides: str, steps: str | None = None, code: bool = False) -> Done:
        ended = respond("", lambda: command.reproduce(path, list(overrides), steps=steps, code=code))
        assert not list(tmp_path.glob("outputs/*/*"))
        return Done(ended, *capsys.readouterr())

    return run


def test_the_same_again_is_identical(past, tmp_path):
    before = {path: path.read_bytes() for path in past.rglob("*") if path.is_file()}
    done, result = reproduce(tmp_path, str(past))
    assert done.code == 0, done.err
    assert "identical: the final weights are the same to the last bit" in done.out
    assert result["reproduction"]["verdict"] == "identical"
    assert result["reproduction"]["of"] == str(past)
    (provenance,) = tmp_path.glob("outputs/*/*/provenance.json")
    assert json.loads(provenance.read_text())["composed_from"] == str(past / "run.yaml")
    assert (
        json.loads(provenance.read_text())["signature"]
        == json.loads((past / "provenance.json").read_text())["signature"]
    )
    again, once = (RunFolder(path).read_config() for path in (provenance.parent, past))
    assert again == once
    assert {path: path.read_bytes() for path in past.rglob("*") if path.is_file()} == before


@pytest.mark.tail
def test_another_world_size_is_equal_from_the_recorded_weights_on(past, tmp_path):
    done, result = reproduce(tmp_path, str(past), "parallel=ddp", "launcher.nproc_per_node=3")
    assert done.code == 0, done.err + done.out
    assert "equal within tolerance" in done.out
    rests_on = result["reproduction"]["rests_on"]
    assert [window["since"] for window in rests_on["windows"]][-1] == 64  # the final weights, evaluated
    assert all(window["largest"]["relative"] < 1e-4 for window in rests_on["windows"])
    assert result["world_size"] == 3


@pytest.mark.tail
def test_in_double_precision_whole_curves_stay_together(tmp_path):
    folder = tmp_path / "past"
    done = execute(sys.executable, str(RUN), *SMALL, "precision=fp64", f"hydra.run.dir={folder}", cwd=tmp_path)
    assert done.code == 0, done.err
    done, result = reproduce(tmp_path, str(folder), "parallel=ddp")
    assert done.code == 0, done.err + done.out
    assert result["reproduction"]["rests_on"]["departure"] is None
    assert result["reproduction"]["rests_on"]["largest"]["relative"] < 1e-9


@pytest.mark.tail
@pytest.mark.parametrize("override", ["seed=2", "loss._target_=torch.nn.MultiMarginLoss"])
def test_what_changes_the_run_is_different(past, tmp_path, override):
    done, result = reproduce(tmp_path, str(past), override)
    assert done.code == 3, done.err + done.out
    assert "different: loss at step 4:" in done.out
    assert result["reproduction"]["verdict"] == "different"
    assert result["status"] == "completed"
    assert override.partition("=")[0] in done.out.partition("different:")[0]  # said before it began


@pytest.mark.tail
def test_the_first_steps_alone(past, tmp_path):
    done, result = reproduce(tmp_path, str(past), "--steps", "18", "data.num_workers=1")
    assert done.code == 0, done.err
    assert "up to step 20, the first logged step at or after 18" in done.out
    assert "identical: all 14 values up to step 20 are the same" in done.out  # of five rows and an epoch
    assert (result["steps"], result["status"]) == (20, "completed")


@pytest.mark.tail
def test_an_evaluation_is_compared_by_its_metrics(past, tmp_path):
    folder, weights = tmp_path / "evaluation", past / "checkpoints" / "last.pt"
    only = (*SMALL, "trainer.evaluate_only=true", f"checkpoint.load={weights}", f"hydra.run.dir={folder}")
    assert execute(sys.executable, str(RUN), *only, cwd=tmp_path).code == 0
    done, result = reproduce(tmp_path, str(folder))
    assert (done.code, result["reproduction"]["verdict"]) == (0, "identical")
    assert "all evaluation metrics" in done.out
    assert "took none; it only evaluated" in reproduce(tmp_path, str(folder), "--steps", "3")[0].err


def test_a_config_from_elsewhere_is_refused_before_anything_is_said_of_it(past, tmp_path, refused):
    folder = RunFolder(tmp_path / "theirs")
    shutil.copytree(past, folder.path)
    text = folder.config.read_text().replace("manyheads.runner.model.rank.small_cnn.SmallCNN", "os.system")
    folder.config.write_text(text)
    folder.write_json(folder.result, {**folder.read_result(), "files": folder.digests()})
    for code in (False, True):
        done = refused("theirs", code=code)
        assert done.code == 2, done.err
        assert "model._target_=os.system" in done.err
        assert done.out == ""
        assert not (tmp_path / "outputs").exists()


@pytest.mark.parametrize(("steps", "end"), [(None, None), ("1", 4), ("4", 4), ("5", 8), ("63", None), ("9999", None)])
def test_the_end_is_a_logged_step_or_that_of_the_whole_run(past, steps, end):
    assert last_step(read_past(past), steps) == end


@pytest.mark.parametrize(
    ("overrides", "steps", "message"),
    [
        ((), "0", "--steps 0 is not allowed"),
        ((), "x", "--steps x is not allowed"),
        (("parallel=dpp",), None, "Did you mean dp or ddp?"),
        (("trainer.epoch=3",), None, "Did you mean trainer.epochs?"),
        (("data.batch_size=13", "parallel=ddp"), None, "data.batch_size=13"),
        (("trainer.device=cuda",), None, "trainer.device=cuda"),
        (("parallel=ddp,single",), None, "parallel"),
    ],
)
def test_mistakes_are_refused_and_leave_nothing(past, refused, overrides, steps, message):
    done = refused(str(past), *overrides, steps=steps)
    assert done.code == 2, done.err
    assert message in done.err
    assert "Traceback" not in done.err


def test_a_mistake_ends_the_command_with_2(past, tmp_path):
    done, result = reproduce(tmp_path, str(past), "--steps", "0")
    assert (done.code, result) == (2, {})
    assert "--steps 0 is not allowed" in done.err


def test_an_edited_run_is_refused(past, tmp_path, refused):
    shutil.copytree(past, tmp_path / "edited")
    steps = tmp_path / "edited" / "steps.csv"
    steps.write_text(steps.read_text().replace("1,4,", "1,5,"))
    done = refused("edited")
    assert done.code == 2
    assert "edited after it ended (steps.csv;" in done.err


def environment(tree: Path) -> dict[str, str]:
    """That of a process that runs the project in ``tree``, although another copy is installed."""
    return {**os.environ, "PYTHONPATH": str(tree / ".names")}


def in_tree(tree: Path, *arguments: str) -> Done:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=tree, capture_output=True, text=True, env=environment(tree), check=False
    )
    return Done(done.returncode, done.stdout, done.stderr)


def git(tree: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=tree, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This project in a repository of its own, with a run that was recorded before the code changed."""
    tree = tmp_path_factory.mktemp("clone") / "project"
    for name in git(ROOT, "ls-files", "--cached", "--others", "--exclude-standard").splitlines():
        if (ROOT / name).exists():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tree / name, follow_symlinks=False)
    git(tree, "init", "-q")
    git(tree, "add", ".")
    git(tree, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "first")
    optimizers = tree / "runner" / "optimizer" / "rank" / "build_optimizer.py"
    optimizers.write_text(optimizers.read_text().replace("lr = option.", "lr = 0.9 * option."))
    done = in_tree(tree, "run.py", *SMALL, "trainer.epochs=1", "hydra.run.dir=past")
    assert done.code == 0, done.err
    optimizers.write_text(optimizers.read_text().replace("0.9 *", "1.1 *"))
    return tree


@pytest.mark.tail
class TestTheRecordedCode:
    """It is a commit and changes that were never committed; today's is another."""

    def test_todays_code_makes_another_run(self, clone):
        done = in_tree(clone, "-m", "manyheads.runner", "reproduce", "past")
        assert done.code == 3, done.err
        assert " code " in done.out

    def test_the_recorded_code_makes_the_same(self, clone):
        done = in_tree(clone, "-m", "manyheads.runner", "reproduce", "past", "--code")
        assert done.code == 0, done.err
        assert "identical" in done.out
        assert len(git(clone, "worktree", "list").splitlines()) == 1
        assert "1.1 *" in (clone / "runner" / "optimizer" / "rank" / "build_optimizer.py").read_text()

    def test_a_commit_that_is_not_here_is_named(self, clone):
        folder = RunFolder(clone / "foreign")
        shutil.copytree(clone / "past", folder.path)
        folder.write_json(folder.provenance, {**json.loads(folder.provenance.read_text()), "commit": "1" * 40})
        folder.write_json(folder.result, {**folder.read_result(), "files": folder.digests()})
        trust = ("-m", "manyheads.runner", "trust", "foreign")
        shown = in_tree(clone, *trust).err.split()[-1]  # what is trusted is confirmed by its digest
        assert in_tree(clone, *trust, "--yes", shown).code == 0
        done = in_tree(clone, "-m", "manyheads.runner", "reproduce", "foreign", "--code")
        assert done.code == 2
        assert "git fetch" in done.err


@pytest.mark.parametrize(
    ("signum", "code"), [tail(signal.SIGINT, 130), tail(signal.SIGTERM, 143), (signal.SIGKILL, -9)]
)
def test_a_signal_ends_it_with_all_its_processes(past, tmp_path, signum, code):
    """Ctrl-C reaches the command alone: the run's own process is in a group of its own."""
    long = ("trainer.epochs=9999", "parallel=ddp", "hydra.run.dir=new")
    typed = [sys.executable, "-m", "manyheads.runner", "reproduce", str(past), *long]
    process = subprocess.Popen(typed, cwd=tmp_path, stdout=subprocess.DEVNULL, start_new_session=True)
    deadline = time.monotonic() + 60
    while not (tmp_path / "new" / "steps.csv").exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    below = psutil.Process(process.pid).children(recursive=True)
    assert len(below) >= 3  # run.py and two ranks
    process.send_signal(signum)
    assert process.wait(30) == code
    assert psutil.wait_procs(below, timeout=20)[1] == []
    if code > 0:
        result = json.loads((tmp_path / "new" / "result.json").read_text())
        assert (result["status"], "reproduction" in result) == ("interrupted", False)


@pytest.mark.tail
def test_another_precision_is_measured_by_the_coarser_one(past, tmp_path):
    done, result = reproduce(tmp_path, str(past), "precision=fp64", "--steps", "8")
    assert done.code == 0, done.err + done.out
    assert 1e-9 < result["reproduction"]["rests_on"]["largest"]["relative"] < 1e-3


@pytest.mark.tail
def test_other_threads_are_within_tolerance(past, tmp_path):
    done, result = reproduce(tmp_path, str(past), "launcher.threads_per_rank=2")
    assert done.code == 0, done.err + done.out
    assert result["reproduction"]["verdict"] in ("identical", "equal within tolerance")
    assert "launcher.threads_per_rank" in done.out
