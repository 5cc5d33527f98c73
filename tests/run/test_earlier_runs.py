"""Runs of a version with another format of run.yaml are listed, shown and reported; the error of all else names it."""

import shutil
import sys
from pathlib import Path

import pytest

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.run_folder import RunFolder
from tests.conftest import Done, execute

RECORDED = Path(__file__).parent / "recorded"
COMMIT = "46a818f961fba8eabf7d865268980631250e8820"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with copies of the recorded runs."""
    return Path(shutil.copytree(RECORDED, tmp_path_factory.mktemp("earlier") / "outputs"))


def command(*arguments: str, cwd: Path) -> Done:
    return execute(sys.executable, "-m", "manyheads.runner", *arguments, cwd=cwd)


@pytest.mark.slow
def test_they_are_listed_and_shown_and_reported(runs: Path) -> None:
    listed = command("list", cwd=runs.parent)
    assert (listed.code, "outputs/completed" in listed.out, "outputs/interrupted" in listed.out) == (0, True, True)
    shown = command("show", "outputs/completed", cwd=runs.parent)
    assert (shown.code, COMMIT[:10] in shown.out) == (0, True), shown.err
    reported = command("report", "outputs/completed", "--to", "comparison", cwd=runs.parent)
    assert reported.code == 0, reported.err
    assert (runs.parent / "comparison" / "comparison.csv").is_file()


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [("resume", "outputs/interrupted"), ("reproduce", "outputs/completed"), ("evaluate", "outputs/completed")],
)
def test_running_one_is_refused_with_the_commit(runs: Path, arguments: tuple[str, ...]) -> None:
    done = command(*arguments, "trust=[runner,launchers,manyheads]", cwd=runs.parent)
    assert done.code == 2
    assert f"Check out commit {COMMIT}, which recorded it, or start a new run." in done.err


def test_without_provenance_it_is_refused_too(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.write_config({"seed": 1})
    folder.refuse_other_format()
    assert folder.read_config() == {"seed": 1}
    folder.config.write_text(folder.config.read_text().replace("format: 3", "format: 2"))
    with pytest.raises(ConfigurationError, match=r"Use the version that recorded it, or start a new run\."):
        RunFolder(tmp_path).refuse_other_format()
