"""A package and a folder of configs of the user's own add an option to every group; no other file knows of them."""

import shutil
import sys
from pathlib import Path

import pytest
import yaml

from manyheads.runner.records.load_run import load_run
from manyheads.runner.run import seal
from manyheads.runner.run.run_folder import RunFolder
from tests.conftest import ROOT, RUN, Done, execute
from tests.tail import tail

pytestmark = pytest.mark.ci

HERE = Path(__file__).parent
CONFIGS = ("--config-dir", str(HERE / "configs"))
TRUST = "trust=[my_package]"
LOGGERS = "logger=[tensorboard,notes]"
MINE = ("experiment=mine", "parallel=averaging", LOGGERS, "launcher.threads_per_rank=1")
GREETING = "greeting='good morning'"
OPTIONS = {  # by group, the option and what the doctor says of it
    "parallel": ("averaging", "averages by hand"),
    "precision": ("exact", "every digit counts"),
    "launcher": ("greeting", "says nothing"),
    "data": ("squares", ""),
    "model": ("net", ""),
    "task": ("shades", ""),
}


@pytest.fixture(autouse=True, scope="module")
def _package(tmp_path_factory):
    """Where the user starts everything, with his package beside him."""
    here = tmp_path_factory.mktemp("user")
    shutil.copytree(HERE / "my_package", here / "my_package")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT / ".names"))
        patch.setenv("COLUMNS", "3000")
        patch.setenv("XDG_STATE_HOME", str(here / "state"))
        patch.chdir(here)
        seal.trust(HERE / "configs", None)
        yield here
    for name in [name for name in sys.modules if name.partition(".")[0] == "my_package"]:
        del sys.modules[name]


def run(*arguments: str) -> Done:
    return execute(sys.executable, str(RUN), *CONFIGS, *arguments, cwd=Path.cwd())


def command(*arguments: str) -> Done:
    return execute(sys.executable, "-m", "manyheads.runner", *arguments, cwd=Path.cwd())


@pytest.fixture(scope="module")
def sweep(_package) -> tuple[Done, Path]:
    """A sweep over the plain strategy and the user's."""
    path = _package / "sweep"
    greeting = ("launcher=greeting", f"launcher.{GREETING}", LOGGERS)
    done = run("-m", TRUST, "parallel=single,averaging", "experiment=mine", *greeting, f"hydra.sweep.dir={path}")
    assert done.code == 0, done.out + done.err
    return done, path


@pytest.mark.slow
def test_help_lists_them():
    shown = run("--help").out
    named = {"experiment": ("mine", ""), "logger": ("notes", ""), "metrics": ("brightest", "")}
    for group, (option, _) in {**OPTIONS, **named}.items():
        (line,) = [line for line in shown.splitlines() if line.startswith(f"{group}: ")]
        assert option in line.replace(",", "").split()


@pytest.mark.slow
def test_the_doctor_asks_them():
    rows = [
        [cell.strip() for cell in line.split("│")[1:-1]] for line in command("doctor", *CONFIGS, TRUST).out.splitlines()
    ]
    asked = [f"{group}={option}" for group, (option, _) in OPTIONS.items()]
    lines = command("doctor", *CONFIGS, TRUST, *asked).out.splitlines()
    for (group, (option, note)), line in zip(OPTIONS.items(), lines, strict=True):
        assert any(row[:1] == [group] and option in row[1].split(", ") for row in rows)
        assert line == f"{group}={option} runs here{f': {note}' if note else ''}."


@pytest.fixture(scope="module")
def spying(_package) -> Path:
    """Somebody's folder of configs whose options leave a mark in the working directory when they are imported."""
    (_package / "my_package" / "spy.py").write_text("open('mark', 'w').close()\nfrom my_package.option import *\n")
    folder = shutil.copytree(HERE / "configs", _package / "spying")
    for path in folder.rglob("*.yaml"):
        path.write_text(path.read_text().replace("my_package.option", "my_package.spy"))
    return folder


@pytest.mark.slow
def test_the_doctor_imports_nothing_of_somebody_elses_folder(spying):
    for asked in ((), ("averaging",)):
        done = command("doctor", *asked, "--config-dir", str(spying))
        assert done.code == 2
        assert f"trust {spying}" in done.err
    assert not Path("mark").exists()


@pytest.fixture
def theirs(sweep, tmp_path, run_here):
    """Somebody's run config with the options; called with changes to its launcher, and with what it is run with."""

    def run_it(changes: dict, *typed: str) -> Done:
        text = (sweep[1] / "1" / "run.yaml").read_text().replace("my_package.option", "my_package.spy")
        config = yaml.safe_load(text)
        config["launcher"] |= changes
        (tmp_path / "run.yaml").write_text(yaml.safe_dump(config))
        return run_here("--config-path", str(tmp_path), "--config-name", "run", *typed, cwd=Path.cwd())

    return run_it


def test_a_run_imports_nothing_that_is_not_trusted(theirs, spying):
    done = theirs({})
    assert done.code == 2
    assert "parallel._option_=my_package.spy.AveragingOption" in done.err
    assert "launcher._target_=my_package.launcher.Greeting" in done.err
    assert not Path("mark").exists()


def test_what_one_declares_to_steer_programs_is_not_for_others_to_set(theirs, spying):
    """Trusting the code of a package is not trusting what a file says to it."""
    assert "launcher.greeting=rm" in theirs({"greeting": "rm"}, TRUST).err
    done = theirs({"greeting": "rm"}, TRUST, "launcher.greeting=rm", "trainer.epochs=0")
    assert "trainer.epochs=0 is not allowed" in done.err


def test_a_search_path_leads_to_them_too(run_here):
    path = f"hydra.searchpath=[file://{HERE / 'configs'}]"
    for overrides, words in {(): "trainer.epochs=0 is not", ("precision=exactt",): "Did you mean exact?"}.items():
        assert words in run_here(path, TRUST, *MINE, *overrides, "trainer.epochs=0", cwd=Path.cwd()).err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["parallel.factor=0"], "parallel.factor=0 is not allowed. Allowed: a number above 0."),
        (["data.samples=7"], "data.samples=7 is not allowed. Allowed: an integer of at least 8."),
        (["data.samples=8", "data.batch_size=16"], "data.samples=8 is less than a batch."),
        (["task.steepness=0"], "task.steepness=0 is not allowed. Allowed: a number above 0."),
        (
            ["checkpoint.monitor=val_acc1"],
            "val_acc1 is not measured. Did you mean val_distance? Allowed: auto, val_loss, val_distance",
        ),
        (["trainer.compile=default"], "parallel=averaging has never been compiled."),
        (["model.feature=3"], "Did you mean model.features (of model=net)?"),
        (["precision=exactt"], "precision=exactt: there is no such option. Did you mean exact?"),
        (["experiment=min"], "experiment=min: there is no such option. Did you mean mine?"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_what_is_wrong_is_refused_in_their_words(run_here, overrides, words):
    given = [each for each in MINE if not overrides[0].startswith(each.partition("=")[0] + "=")]
    done = run_here(*CONFIGS, TRUST, *given, *overrides, cwd=Path.cwd())
    assert done.code == 2
    assert words in done.err


@pytest.mark.processes
def test_they_run_and_are_compared(sweep):
    done, path = sweep
    assert done.out.count("good morning") == 2
    results = [RunFolder(path / number).read_result() for number in "01"]
    assert [result["status"] for result in results] == ["completed"] * 2
    assert results[1]["world_size"] == 2
    losses = [result["metrics"]["train_loss"] for result in results]
    assert losses[0] == pytest.approx(losses[1], rel=1e-9)
    distances = [result["metrics"]["val_distance"] for result in results]
    assert distances[0] == pytest.approx(distances[1], rel=1e-9)
    assert [result["objective"] for result in results] == distances
    for number, distance in zip("01", distances, strict=True):
        assert (path / number / "notes.txt").read_text() == f"1: {distance:.6f} 0.25\n"
        assert list((path / number / "tensorboard").iterdir())
    page = (path / "comparison.html").read_text()
    assert "Validation mean distance against seconds of training" in page
    assert "#123456" in page
    assert "#56646e" in page
    assert "more than rounding can explain" not in page
    assert yaml.safe_load((path / "1" / "run.yaml").read_text())["parallel"]["_option_"].startswith("my_package.")


@pytest.mark.processes
def test_they_resume(sweep):
    """Without the folder of configs: the run knows all."""
    _, path = sweep
    again = RunFolder(shutil.copytree(path / "1", path.parent / "again"))
    before = again.read_result()
    again.result.unlink()
    shutil.rmtree(again.checkpoints)
    done = command("resume", str(again.path))
    assert done.code == 0, done.err
    assert again.read_result()["weights_sha256"] == before["weights_sha256"]


@pytest.mark.processes
def test_a_report_asks_what_the_user_recorded_himself_and_no_more(sweep, spying):
    _, path = sweep
    assert load_run(path / "1").declared("parallel").color == "#123456"
    foreign = Path(shutil.copytree(path / "1", path.parent / "foreign"))
    config = yaml.safe_load((foreign / "run.yaml").read_text())
    config["parallel"]["_option_"] = "my_package.spy.AveragingOption"
    (foreign / "run.yaml").write_text(yaml.safe_dump(config))
    Path("mark").unlink(missing_ok=True)
    assert load_run(foreign).declared("parallel").color is None
    assert not Path("mark").exists()


@pytest.mark.processes
@pytest.mark.parametrize(
    ("factor", "code", "words"),
    [("2.0", 3, "parallel.factor=2.0 is meant to change"), tail("1.0", 0, "equal: averaging and single")],
)
def test_parity_compares_them(factor, code, words):
    done = command("parity", *CONFIGS, TRUST, *MINE, f"parallel.factor={factor}", "--steps", "2")
    assert done.code == code, done.out + done.err
    assert words in done.out
