"""A package that pip installs adds options: known from its metadata, imported once the user chooses or trusts them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from manyheads.runner.config import own_folders
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.records.load_run import load_run
from manyheads.runner.run.run_folder import RunFolder
from tests.conftest import ROOT, RUN, Done, execute

pytestmark = pytest.mark.ci

HERE = Path(__file__).parent
PACKAGE = "ring-of-ranks 1.0"
MARK = "imported"


@pytest.fixture(autouse=True, scope="module")
def environment(tmp_path_factory):
    """A folder in which pip has installed the package, whose import leaves a mark in the working directory."""
    here = tmp_path_factory.mktemp("user")
    source = shutil.copytree(HERE / "installed", here / "source")
    with open(source / "ring_of_ranks" / "__init__.py", "a") as file:
        file.write(f"\nopen({MARK!r}, 'w').close()\n")
    command = ["-m", "pip", "install", "--no-deps", "--no-build-isolation", "--no-index", "--target"]
    done = subprocess.run(
        [sys.executable, *command, str(here / "packages"), str(source)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / ".names"), str(here / "packages")]))
        patch.setenv("COLUMNS", "3000")
        patch.setenv("XDG_STATE_HOME", str(here / "state"))
        patch.setenv("XDG_CONFIG_HOME", str(here / "config"))
        (here / "here").mkdir()
        patch.chdir(here / "here")
        yield here


def run(*arguments: str) -> Done:
    return execute(sys.executable, str(RUN), *arguments, cwd=Path.cwd())


def command(*arguments: str) -> Done:
    return execute(sys.executable, "-m", "manyheads.runner", *arguments, cwd=Path.cwd())


@pytest.fixture
def is_imported():
    Path(MARK).unlink(missing_ok=True)
    return lambda: Path(MARK).exists()


@pytest.fixture(scope="module")
def sweep(environment) -> tuple[Done, Path]:
    path = environment / "sweep"
    done = run(
        "-m",
        "experiment=ringed",
        "parallel=single,ring",
        "launcher=polite",
        "launcher.niceness=0",
        "trainer.epochs=1",
        f"hydra.sweep.dir={path}",
    )
    assert done.code == 0, done.out + done.err
    return done, path


@pytest.mark.slow
def test_help_lists_its_options(is_imported):
    shown = run("--help").out
    for group, option in {"parallel": "ring", "logger": "jotter", "experiment": "ringed"}.items():
        (line,) = [line for line in shown.splitlines() if line.startswith(f"{group}: ")]
        assert option in line.replace(",", "").split()
    assert not is_imported()


@pytest.mark.slow
def test_a_run_without_them_imports_nothing(is_imported):
    assert run("--cfg", "job").code == 0
    done = run("parallel=rng")
    assert "Did you mean ring?" in done.err
    assert not is_imported()


@pytest.mark.slow
def test_the_doctor_imports_what_is_chosen_or_trusted(is_imported):
    options = "parallel=ring, launcher=polite, logger=jotter, model=skipping"
    said = f"Installed with {PACKAGE}, and not imported until you choose it: {options}"
    assert said in command("doctor").out
    assert f"parallel=ring is installed with {PACKAGE}" in command("doctor", "parallel").out
    assert not is_imported()
    assert command("doctor", "parallel=ring").out == "parallel=ring runs here: gradients travel around a ring.\n"
    assert is_imported()
    trusted = command("doctor", "trust=[ring_of_ranks]").out
    assert said not in trusted
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in trusted.splitlines()]
    assert any(row[:1] == ["parallel"] and "ring" in row[1].split(", ") for row in rows)


@pytest.mark.processes
def test_they_run_and_are_compared(sweep):
    done, path = sweep
    runs = [RunFolder(path / number) for number in "01"]
    results = [run.read_result() for run in runs]
    assert [result["world_size"] for result in results] == [1, 2]
    assert {run["launcher"]["name"] for run in map(RunFolder.read_config, runs)} == {"polite"}
    losses = [result["metrics"]["val_loss"] for result in results]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert (path / "1" / "jotted.txt").read_text() == f"1: {losses[1]:.6f}\n"
    assert "ring" in done.out
    assert "#654321" in (path / "comparison.html").read_text()


@pytest.mark.processes
def test_a_report_imports_nothing_of_somebody_elses_run(sweep, is_imported):
    _, path = sweep
    assert load_run(path / "1").config["parallel._option_"].startswith("ring_of_ranks.")
    foreign = Path(shutil.copytree(path, path.parent / "foreign"))
    (foreign / "1" / "run.yaml").write_text((foreign / "1" / "run.yaml").read_text() + "\n")
    done = command("report", str(foreign))
    assert done.code == 0, done.err
    assert "ring" in done.out
    assert not is_imported()


@pytest.mark.processes
@pytest.mark.parametrize("typed", [(), ("trust=[ring_of_ranks]",)], ids=["untrusted", "trusted"])
def test_somebody_elses_config_cannot_name_them(sweep, is_imported, tmp_path, typed):
    """Installing a package is not trusting it, and trusting it is not trusting what a file says to it."""
    config = yaml.safe_load((sweep[1] / "1" / "run.yaml").read_text())
    config["logger"]["jotter"]["file"] = "elsewhere.txt"
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(config))
    done = run("--config-path", str(tmp_path), "--config-name", "run", *typed)
    assert done.code == 2
    assert "logger.jotter.file=elsewhere.txt" in done.err if typed else "ring_of_ranks.rank.Ring" in done.err
    assert not Path("elsewhere.txt").exists()
    assert is_imported() == bool(typed)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("parallel/ddp.yaml", "parallel=ddp is an option of manyheads itself."),
        ("parallel/ring.yaml", "parallel=ring is an option of first 1."),
        (
            "hydra/launcher/mine.yaml",
            "hydra/launcher/mine.yaml is not an option. Allowed: <group>/<option>.yaml in model,",
        ),
        ("config.yaml", "config.yaml is not an option."),
        ("tuned/digits_sgd.yaml", "tuned/digits_sgd.yaml is not an option."),
        ("experiment/mnist_quick.yaml", "experiment/mnist_quick.yaml would change every run with data=mnist."),
    ],
)
def test_it_cannot_take_the_place_of_something_else(tmp_path, monkeypatch, path, words):
    for name, option in (("first", "parallel/ring.yaml"), ("second", path)):
        file = tmp_path / f"own_{name}" / option
        file.parent.mkdir(parents=True)
        file.write_text("")
        metadata = tmp_path / f"{name}-1.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Name: {name}\nVersion: 1\n")
        (metadata / "entry_points.txt").write_text(f"[manyheads.conf]\nown = own_{name}\n")
    monkeypatch.syspath_prepend(tmp_path)
    own_folders.packages.cache_clear()
    with pytest.raises(ConfigurationError) as caught:
        own_folders.packages()
    assert words in str(caught.value)
    assert str(caught.value).endswith("It comes from second 1: uninstall that package, or change its version.")
    own_folders.packages.cache_clear()
