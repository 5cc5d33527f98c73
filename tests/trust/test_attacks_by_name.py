"""Names in the user's own runs that somebody gives another meaning before they are looked up again."""

import json
import os
import shutil
from pathlib import Path

import pytest

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine.ownership import is_mine
from manyheads.runner.option.locate import STARTED_IN, own_folders
from manyheads.runner.provenance.started_in import find_where_started, in_directory_of
from manyheads.runner.run.ledger import Ledger
from manyheads.runner.run.run_folder import RunFolder
from tests.conftest import FAST
from tests.trust.foreign import OWN

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser can give files to another user")
RUN = (*(o for o in FAST if "width" not in o), "data=synthetic", "data.image_size=32")
EVIL = "import os\nos.mkdir('mark')\n" + OWN


@pytest.fixture(autouse=True)
def nowhere_else(monkeypatch):
    """Each test looks packages up for itself."""
    monkeypatch.delenv(STARTED_IN, raising=False)


@pytest.fixture
def job(here):
    """A directory below one that everybody may write to, as /tmp, from which a run with a package and a file starts."""
    shared = here / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    (shared / "job").mkdir(mode=0o755)
    for name in ("mine.py", "their_package.py"):
        (shared / "job" / name).write_text(OWN.replace("imported", "first"))
    return shared / "job"


@pytest.fixture
def past(job, here, run_here, monkeypatch):
    monkeypatch.chdir(job)
    done = run_here("model=custom", "model._target_=their_package.Net", *RUN, f"hydra.run.dir={here}/past", cwd=job)
    assert done.code == 0, done.err
    monkeypatch.chdir(here)
    return RunFolder(here / "past")


@pytest.fixture
def received(tmp_path_factory, monkeypatch):
    """The working directory: a folder that somebody sent, with a module named as the user's package."""
    folder = tmp_path_factory.mktemp("received")
    (folder / "their_package.py").write_text(EVIL)
    monkeypatch.chdir(folder)
    return folder


class TestPackages:
    def test_are_looked_up_where_the_run_was_started(self, past, job, received):
        find_where_started(past)
        assert own_folders() == [str(job)]

    @pytest.mark.parametrize("change", ["removed", "without its directory", "with another directory"])
    def test_are_not_looked_up_in_the_working_directory_for_another_record(self, past, received, change):
        record = json.loads(past.provenance.read_text())
        if change == "removed":
            past.provenance.unlink()
        else:
            directory = {"with another directory": {"directory": str(received)}}.get(change, {})
            record = {key: value for key, value in record.items() if key != "directory"} | directory
            past.provenance.write_text(json.dumps(record))
        find_where_started(past)
        assert own_folders() == []

    def test_are_the_runs_copies_if_its_directory_is_gone(self, past, job, received, capfd):
        before = (job / "their_package.py").read_text()
        shutil.rmtree(job)
        find_where_started(past)
        (folder,) = own_folders()
        assert (Path(folder) / "their_package.py").read_text() == before
        assert is_mine(Path(folder))
        assert f"{job}, where the run was started, is not used, since it no longer exists" in capfd.readouterr().err

    def test_are_found_nowhere_if_the_copies_are_not_the_recorded_ones(self, past, job, received):
        shutil.rmtree(job)
        next(past.code.rglob("their_package.py")).write_text(EVIL)
        find_where_started(past)
        assert own_folders() == []

    def test_of_a_job_that_was_never_started_are_looked_up_where_its_sweep_was(self, past, job, received, tmp_path):
        past.provenance.unlink()
        (tmp_path / "sweep").mkdir()
        job_folder = RunFolder(shutil.move(past.path, tmp_path / "sweep" / "0"))
        os.chdir(job)
        Ledger(tmp_path / "sweep").create({})
        os.chdir(received)
        find_where_started(job_folder)
        assert own_folders() == [str(job)]


class TestSearch:
    @pytest.fixture
    def search(self, job, tmp_path, here, monkeypatch):
        """A search's ledger, whose command names a file in the directory where it was started."""
        monkeypatch.chdir(job)
        Ledger(tmp_path / "search").create({}, arguments=["-m", "model=mine.py:Net"], is_search=True)
        return Ledger(tmp_path / "search")

    def test_not_where_somebody_says_that_it_was(self, search, received):
        first = json.loads(search.path.read_text()) | {"directory": str(received)}
        search.path.write_text(json.dumps(first) + "\n")
        with pytest.raises(ConfigurationError, match="an unknown directory"), in_directory_of(search):
            pass

    @as_root
    def test_not_if_somebody_created_it_again(self, search, job, received):
        os.chown(job, NOBODY, NOBODY)
        with pytest.raises(ConfigurationError, match=f"others can write.*trust {job}"), in_directory_of(search):
            pass
